const bar = document.querySelector('.filters'), rows = [...document.querySelectorAll('ul.bumps > li')];
const [text, state, repository, world] = bar.querySelectorAll('input, select');
function matches(row, words) {
  const content = row.textContent.toLowerCase();
  return words.every((word) => content.includes(word))
    && [state, repository, world].every((list) => !list.value || row.dataset[list.name] === list.value);
}
function filterRows() {
  const words = text.value.toLowerCase().split(/\s+/);
  for (const row of rows) row.hidden = !matches(row, words);
  bar.querySelector('output').value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} shown`;
}
bar.hidden = false;
bar.addEventListener('input', filterRows);
filterRows();
