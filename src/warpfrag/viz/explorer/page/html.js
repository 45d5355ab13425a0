// Small helpers for the document.

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** Return the element with an id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Return text escaped for HTML. */
export function escapeText(text) {
  return String(text).replace(/[&<>"]/g, (letter) => ESCAPES[letter]);
}

/** Return a PTX name that may break before its dots. */
export function breakable(name) {
  return escapeText(name).replace(/(\.|::)/g, "<wbr>$1");
}

/** Return a row of buttons, one of them pressed; a click sets a field of the state. */
export function choices(label, field, options, current) {
  const buttons = options.map(([value, text]) => {
    const pressed = String(value) === String(current);
    return (
      `<button type="button" data-set="${field}" data-value="${value}" ` +
      `aria-pressed="${pressed}">${escapeText(text)}</button>`
    );
  });
  return `<span class="choices" role="group" aria-label="${escapeText(label)}">${buttons.join("")}</span>`;
}

/** Return a list as text: 0, 2 and 3. */
export function listed(things, word = "and") {
  const last = things.length - 1;
  return last < 1 ? `${things[0] ?? "none"}` : `${things.slice(0, last).join(", ")} ${word} ${things[last]}`;
}

/** Return sorted numbers as text with ranges: 0–3 and 16–19. */
export function ranges(numbers) {
  const starts = numbers.filter((number) => !numbers.includes(number - 1));
  const ends = numbers.filter((number) => !numbers.includes(number + 1));
  return listed(starts.map((start, place) => (start === ends[place] ? `${start}` : `${start}–${ends[place]}`)));
}

/** Let the arrow keys move over items, one of which Tab reaches. */
export function roving(container, items, target) {
  container.addEventListener("keydown", (event) => {
    const item = event.target.closest(items);
    if (!item || event.altKey || event.ctrlKey || event.metaKey) return;
    const next = target(item, event.key);
    if (!next) return;
    event.preventDefault();
    moveTabStop(item, next);
    next.focus();
  });
}

/** Make an item the only one of its group that Tab reaches. */
export function moveTabStop(from, to) {
  if (from) from.tabIndex = -1;
  to.tabIndex = 0;
}

/** Return the item of a list to which an arrow key, Home or End leads. */
export function listStep(list, item, key) {
  const place = list.indexOf(item);
  const steps = {
    ArrowDown: place + 1,
    ArrowRight: place + 1,
    ArrowUp: place - 1,
    ArrowLeft: place - 1,
    Home: 0,
    End: list.length - 1,
  };
  return key in steps ? list[steps[key]] : undefined;
}
