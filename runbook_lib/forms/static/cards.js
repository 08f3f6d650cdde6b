// The decision cards of a form, and what a form needs of its page: scrolling, focus, and plots in the page's theme.
// A card's texts come from logs and files: they are set as text, never as markup.

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== ""));
  return node;
}

function missing(card, answer) {
  const option = card.options.find((each) => each.choice === answer.choice);
  if (!option) return "";
  if (option.parameter !== "allow" && !(answer.reason || "").replaceAll(";", " ").trim()) {
    return "Give a reason: press Enter.";
  }
  if (option.choice === "accept" && card.word && (answer.typed || "").trim().toLowerCase() !== card.word) {
    return `Type “${card.word}” to accept the ${card.danger}: press Enter.`;
  }
  return "";
}

function folded(title, content) {
  return element("details", {}, element("summary", {}, title), content);
}

function body(card) {
  const parts = [];
  if (card.plot) {
    const shown = card.files.length ? "each file, new to old" : "old and new by step, with what is expected";
    const alt = `${card.title}: ${shown}`;
    parts.push(element("img", { src: `data:image/svg+xml;base64,${card.plot}`, alt }));
  }
  if (card.details.length) {
    const list = element("dl");
    for (const [label, text] of card.details) list.append(element("dt", {}, label), element("dd", {}, text));
    parts.push(list);
  }
  if (card.lines.length) {
    const lines = element("pre", { tabindex: "0", "aria-label": "lines of the log" }, card.lines.join("\n"));
    parts.push(element("div", {}, element("strong", {}, "The lines of the log that matter"), lines));
  }
  if (/^https?:\/\//.test(card.log)) {
    parts.push(element("a", { href: card.log, target: "_blank", rel: "noopener" }, "Open the log"));
  }
  if (card.files.length) {
    const files = element("ul");
    for (const file of card.files) files.append(element("li", {}, file));
    parts.push(folded(`${card.files.length} files`, files));
  }
  if (card.command) {
    const command = element("pre", { tabindex: "0", "aria-label": "the command that searches" }, card.command);
    parts.push(folded("Find the change in the image that did it", command));
  }
  return element("div", { class: "rb-body" }, ...parts);
}

function render({ model, el }) {
  el.classList.add("rb-cards");
  el.dataset.lmSuppressShortcuts = "true"; // or JupyterLab would take j and k
  let nodes = [];
  // The answers are kept here, and sent in numbered messages that the kernel confirms.
  let { number: sent, answers } = model.get("confirmed");
  let heldButton = null;
  const answer = (card) => answers[card.id] || {};

  function store(card, changes) {
    answers = { ...answers, [card.id]: { ...answer(card), ...changes } };
    sent += 1;
    model.send({ number: sent, answers });
    refresh();
  }

  // The kernel handles clicks in another thread than messages: a click waits until the answers before it are known there.
  function holdClick(event) {
    const button = event.target.closest?.(".runbook-preview, .runbook-apply");
    if (!button || model.get("confirmed").number >= sent || !el.closest(".runbook-form")?.contains(button)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    heldButton = button;
  }

  function confirmed() {
    const { number, answers: known } = model.get("confirmed");
    if (number < sent) return;
    sent = number;
    answers = known;
    refresh();
    const button = heldButton;
    heldButton = null;
    button?.click();
  }

  function choose(card, option) {
    if (answer(card).choice === option.choice) {
      store(card, { choice: "", reason: "", typed: "" });
    } else {
      store(card, { choice: option.choice, reason: option.reason, typed: "" });
    }
  }

  function decided(card) {
    return Boolean(answer(card).choice) && !missing(card, answer(card));
  }

  // Decided cards fold once the focus is elsewhere, but never between pressing the mouse and letting go: what is clicked
  // would move away.
  function fold() {
    for (const { card, root } of nodes) {
      root.classList.toggle("rb-folded", decided(card) && !root.contains(document.activeElement));
    }
  }

  function focus(index) {
    const node = nodes[Math.max(0, Math.min(index, nodes.length - 1))];
    if (!node) return;
    node.root.focus({ preventScroll: true });
    fold();
    show(node.root);
  }

  // A card that is higher than the page begins at its top.
  function show(root) {
    const page = el.closest(".jp-WindowedPanel-outer") ?? document.documentElement;
    root.scrollIntoView({ block: root.offsetHeight > page.clientHeight ? "start" : "nearest" });
  }

  function advance(index) {
    const later = nodes.findIndex((node, at) => at > index && !decided(node.card));
    const first = nodes.findIndex((node) => !decided(node.card));
    if (later >= 0 || first >= 0) return focus(later >= 0 ? later : first);
    focus(index);
    focusPreview(nodes[index].root, 40);
  }

  // The button is enabled once the kernel has the last answer.
  function focusPreview(from, attempts) {
    const preview = el.closest(".runbook-form")?.querySelector(".runbook-preview");
    if (!preview || !attempts || !from.contains(document.activeElement)) return;
    if (preview.disabled) setTimeout(() => focusPreview(from, attempts - 1), 50);
    else preview.focus();
  }

  function build(card, index) {
    const choices = element("div", { class: "rb-choices", role: "group", "aria-label": `Choices for ${card.title}` });
    const buttons = card.options.map((option) => {
      const button = element("button", { type: "button", "aria-pressed": "false" }, element("kbd", {}, option.key), ` ${option.label}`);
      button.addEventListener("click", () => choose(card, option));
      choices.append(button);
      return [option, button];
    });
    const reason = element("input", { type: "text", "aria-label": `Reason for ${card.title}`, placeholder: "why" });
    reason.addEventListener("input", () => store(card, { reason: reason.value }));
    const typed = element("input", { type: "text", "aria-label": `Type ${card.word} to accept ${card.title}`, placeholder: card.word });
    typed.addEventListener("input", () => store(card, { typed: typed.value }));
    const typing = element("label", {}, `Type “${card.word}” to accept the ${card.danger}`, typed);
    const reasons = element("div", { class: "rb-reasons" }, element("label", {}, "Reason", reason), typing);
    const state = element("span", { class: "rb-state", role: "status" });
    const title = element("h4", {}, `${card.title} `, card.danger ? element("span", { class: "rb-danger" }, `⚠ ${card.danger}`) : "");
    const earlier = card.earlier
      ? element("p", { class: "rb-earlier" }, element("kbd", {}, "c"), ` As before (the value is the same): ${card.earlier.choice}, “${card.earlier.reason}”`)
      : null;
    const root = element(
      "article",
      { class: "rb-card", tabindex: "0", "aria-label": `Decision ${index + 1}: ${card.title}` },
      element("header", {}, title, state), element("p", { class: "rb-headline" }, card.headline), body(card), earlier, choices, reasons,
    );
    const enter = (event) => {
      if (event.key === "Escape") {
        root.focus();
      } else if (event.key === "Enter") {
        if (event.target === reason && typing.style.display !== "none" && missing(card, { ...answer(card), reason: "x" })) typed.focus();
        else if (decided(card)) advance(index);
        event.preventDefault();
      }
      event.stopPropagation();
    };
    reason.addEventListener("keydown", enter);
    typed.addEventListener("keydown", enter);
    root.addEventListener("focus", () => root.classList.remove("rb-folded"));
    root.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const onButton = event.target.tagName === "BUTTON" || event.target.tagName === "SUMMARY" || event.target.tagName === "A";
      const option = card.options.find((each) => each.key === event.key);
      if (event.key === "j" || event.key === "ArrowDown") focus(index + 1);
      else if (event.key === "k" || event.key === "ArrowUp") focus(index - 1);
      else if (option) {
        if (answer(card).choice !== option.choice) choose(card, option);
        if (decided(card)) advance(index);
      } else if (event.key === "c" && card.earlier) {
        store(card, { choice: card.earlier.choice, reason: card.earlier.reason, typed: "" });
        if (decided(card)) advance(index);
      } else if (event.key === "Enter" && !onButton && answer(card).choice) {
        (answer(card).reason && typing.style.display !== "none" ? typed : reason).focus();
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
    return { card, root, buttons, reason, typed, typing, reasons, state };
  }

  function refresh() {
    for (const { card, root, buttons, reason, typed, typing, reasons, state } of nodes) {
      const current = answer(card);
      const problem = missing(card, current);
      const option = card.options.find((each) => each.choice === current.choice);
      for (const [each, button] of buttons) button.setAttribute("aria-pressed", String(each.choice === current.choice));
      reasons.style.display = current.choice && option?.parameter !== "allow" ? "" : "none";
      typing.style.display = card.word && current.choice === "accept" ? "" : "none";
      if (document.activeElement !== reason) reason.value = current.reason || "";
      if (document.activeElement !== typed) typed.value = current.typed || "";
      reason.setAttribute("aria-invalid", String(Boolean(problem && !(current.reason || "").trim())));
      root.classList.toggle("rb-decided", decided(card));
      if (!decided(card)) root.classList.remove("rb-folded");
      const summary = decided(card) ? `✓ ${option.label}${current.reason ? `: ${current.reason}` : ""}` : "open";
      const text = problem ? `✗ ${problem}` : summary;
      if (state.textContent !== text) state.textContent = text;
    }
    const open = nodes.filter((node) => !decided(node.card)).length;
    count.textContent = `For you to decide: ${nodes.length}, of which ${open} open. `;
  }

  const count = element("strong", { role: "status" });
  const keys = [["j", "next"], ["k", "previous"], ["a b r h s", "choose"], ["Enter", "reason"], ["Esc", "back"]];
  const help = element("span", { class: "rb-keys" });
  for (const [key, meaning] of keys) help.append(element("kbd", {}, key), ` ${meaning}  `);

  function rebuild() {
    const focused = nodes.findIndex((node) => node.root.contains(document.activeElement));
    nodes = model.get("cards").map(build);
    el.replaceChildren();
    el.style.display = nodes.length ? "" : "none";
    if (nodes.length) el.append(element("div", { class: "rb-head" }, count, help), ...nodes.map((node) => node.root));
    for (const lines of el.querySelectorAll("pre")) lines.scrollTop = lines.scrollHeight; // a log ends with the failure
    refresh();
    fold();
    if (focused >= 0 && nodes.length) focus(focused);
  }

  function reveal(name) {
    const form = el.closest(".runbook-form");
    const target = name === "cards" ? nodes[0]?.root : form?.querySelector(name === "form" ? "select, input" : `.runbook-${name}`);
    fold();
    if (!target) return;
    const place = { form, cards: el }[name] || target;
    place.scrollIntoView({ block: ["form", "progress"].includes(name) ? "nearest" : "start" });
    if (name === "progress") return; // the focus stays on the button that cancels
    if (name === "form") target.scrollIntoView({ block: "nearest" }); // a form may be higher than the page
    if (!target.matches("select, input, article")) target.tabIndex = -1;
    target.focus({ preventScroll: true });
  }

  const receive = (message) => {
    // The page shows what belongs to the message in a moment.
    if (message.reveal) requestAnimationFrame(() => setTimeout(() => reveal(message.reveal), 50));
  };
  model.on("change:cards", rebuild);
  model.on("change:confirmed", confirmed);
  model.on("msg:custom", receive);
  document.addEventListener("click", holdClick, true);
  el.addEventListener("click", fold);
  rebuild();
  requestAnimationFrame(() => setTimeout(() => reveal("form"), 50));
  return () => {
    model.off("change:cards", rebuild);
    model.off("change:confirmed", confirmed);
    document.removeEventListener("click", holdClick, true);
    model.off("msg:custom", receive);
  };
}

export default { render };
