const bar = document.querySelector('.sieve'), rows = [...document.querySelectorAll('ul.bumps > li')];
const [text, state, repository, world] = bar.querySelectorAll('input, select');
function sift() {
  const words = text.value.toLowerCase().split(/\s+/);
  const fits = (row) => words.every((word) => row.textContent.toLowerCase().includes(word))
    && [state, repository, world].every((it) => !it.value || row.dataset[it.name] === it.value);
  for (const row of rows) row.hidden = !fits(row);
  bar.querySelector('output').value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} shown`;
}
bar.hidden = false;
bar.addEventListener('input', sift);
sift();
