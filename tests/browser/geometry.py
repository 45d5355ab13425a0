"""Boxes and edges of the page, measured in the browser, so that tests do not compare pixels."""

DASHES = str.maketrans({"\N{EN DASH}": "-", "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}": "<"})
DASHES |= str.maketrans({"\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}": ">"})


def plain(text):
    """Return the text of the page, with the dashes and angles of a keyboard."""
    return text.translate(DASHES)


# Where each grid stands, what is cut off, and which words do not fit where they stand.
MEASURE = """() => {
  const canvas = document.createElement('canvas').getContext('2d');
  const boxOf = (element) => element.getBoundingClientRect();
  const firstOf = (grid) => grid.querySelector('[data-operand], [data-bytes], [data-unit]');
  const onScreen = (box) =>
    box.width > 0 && box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.right <= innerWidth;
  const clipOf = (element) => {
    const around = element.parentElement;
    return around === document.body || /auto|scroll/.test(getComputedStyle(around).overflowX) ? around : clipOf(around);
  };
  const inkOf = (node) => {  // what is painted of a text, without the room that a font leaves around it
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    canvas.font = getComputedStyle(node.parentElement).font;
    const size = canvas.measureText(node.textContent);
    const base = box.top + size.fontBoundingBoxAscent;
    return { left: box.left, right: box.right, top: base - size.actualBoundingBoxAscent,
             bottom: base + size.actualBoundingBoxDescent };
  };
  const gap = (box, ink, by = 0) => Math.min(
    ink.left - box.left, box.right - ink.right, ink.top - box.top, box.bottom - ink.bottom) - by;
  const texts = (element) => [...element.querySelectorAll('*'), element]
    .flatMap((part) => [...part.childNodes]).filter((node) => node.nodeType === 3 && node.textContent.trim());
  const ringOf = (element) => {  // how far a ring reaches into the element
    const style = getComputedStyle(element);
    const inset = /inset/.test(style.boxShadow) ? Number(style.boxShadow.match(/(\\d+)px inset/)[1]) : 0;
    return style.outlineStyle === 'none' ? inset : Math.max(inset, -parseFloat(style.outlineOffset));
  };
  const grids = [...document.querySelectorAll('#view [data-grid]')].map((grid) => {
    const clip = clipOf(grid), frame = boxOf(clip);
    const heads = [...grid.querySelectorAll('.heads > .col-head, .line:first-child > .col-head')].map(boxOf);
    const right = Math.min(frame.right, innerWidth);
    const way = document.querySelector(`[data-jump="${grid.dataset.grid}"]`);
    const signs = [...grid.closest('.operand').querySelectorAll('.more button')];
    return {
      grid: grid.dataset.grid,
      cell: boxOf(firstOf(grid)).toJSON(),
      seen: onScreen(boxOf(firstOf(grid))),
      way: way !== null && onScreen(boxOf(way)),
      hidden: heads.filter((head) => head.right > right + 1).length,
      cut: heads.length ? Math.min(...heads.map((head) => Math.abs(head.right - right))) : 0,
      sign: signs.filter((sign) => boxOf(sign).width).map((sign) => sign.textContent),
      rows: [...grid.querySelectorAll('.row-head')].flatMap(texts)
        .filter((node) => inkOf(node).left < Math.max(0, frame.left)).length,
    };
  });
  const cramped = [...document.querySelectorAll('#view .cell, #view .box-label, #view .col-head')].flatMap((cell) =>
    texts(cell).filter((node) => gap(boxOf(cell), inkOf(node)) < 0).map((node) => node.textContent));
  const rings = [...document.querySelectorAll('#view .is-lane, #view .is-here')].flatMap((cell) =>
    texts(cell).map((node) => gap(boxOf(cell), inkOf(node), ringOf(cell))));
  const labels = [...document.querySelectorAll('#view .box-label')].map((label) => label.textContent);
  return { grids, cramped: [...new Set(cramped)], ring: Math.min(99, ...rings), rings: rings.length, labels };
}"""
# The colours of every visible text, and the colours behind it from the nearest that is not transparent: of texts in the
# same two colours the first, and how many there are.
TEXTS = """() => {
  const numbers = (colour) => {
    const all = (colour.match(/[\\d.]+/g) ?? []).map(Number);
    const scale = colour.startsWith('color(') ? 255 : 1;
    return [...all.slice(0, 3).map((part) => part * scale), all[3] ?? 1];
  };
  const over = (top, below) => [0, 1, 2].map((part) => top[part] * top[3] + below[part] * (1 - top[3])).concat(1);
  const known = new Map();
  const behind = (element) => {
    if (!element) return [255, 255, 255, 1];
    if (!known.has(element)) {
      const own = numbers(getComputedStyle(element).backgroundColor);
      known.set(element, own[3] === 1 ? own : over(own, behind(element.parentElement)));
    }
    return known.get(element);
  };
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || element.closest('script, option, #toast:not(.shown)')) continue;
    const line = element.closest('#results > :nth-child(n + 30)');
    if (line && !line.querySelector('[aria-current]')) continue; // one line of the list is like the other
    if (element.getBoundingClientRect().width < 2) continue;
    const { color } = getComputedStyle(element);
    const key = `${color} on ${behind(element)}`;
    found.set(key, found.get(key) ?? [text, numbers(color), behind(element), 0]);
    found.get(key)[3]++;
  }
  return [...found.values()];
}"""
