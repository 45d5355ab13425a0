// Export the view as SVG with real text, from the elements of the page.

import { escapeText } from "./html.js";

const MARGIN = 8;
const MARK = 5; // size of a marked corner
const BASELINE = 0.8; // relative to the line height
const NUMBER = /[\d.]+(?:e-?\d+)?/g;
const LEFT_OUT = ".controls, .choices, .view-bar, .jumps, .more, .hidden";

/** Return the view as SVG text. */
export function svgText(view) {
  const frame = view.getBoundingClientRect();
  const left = frame.left - view.scrollLeft - MARGIN;
  const top = frame.top - view.scrollTop - MARGIN;
  const parts = [];
  let width = 0;
  let height = 0;
  for (const element of view.querySelectorAll("*")) {
    if (element.closest(LEFT_OUT)) continue;
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    if (!box.width || style.visibility === "hidden") continue;
    const place = { x: box.left - left, y: box.top - top, width: box.width, height: box.height };
    width = Math.max(width, place.x + place.width);
    height = Math.max(height, place.y + place.height);
    parts.push(rectangle(element, style, place));
    for (const node of element.childNodes) {
      if (node.nodeType === Node.TEXT_NODE && node.textContent.trim()) parts.push(...lines(node, style, left, top));
    }
  }
  const paper = getComputedStyle(document.body).backgroundColor;
  const size = [width + MARGIN, height + MARGIN].map(Math.ceil);
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${size[0]}" height="${size[1]}" ` +
    `viewBox="0 0 ${size.join(" ")}" font-family="sans-serif">\n` +
    `<rect width="100%" height="100%" ${painted("fill", paper)}/>\n${parts.filter(Boolean).join("\n")}\n</svg>\n`
  );
}

/** Return a computed colour as SVG 1.1 attributes, which support neither color(srgb 1 1 1 / 0.35) nor rgba(). */
function painted(attribute, colour) {
  const [red, green, blue, opacity = 1] = colour.match(NUMBER).map(Number);
  if (!opacity) return `${attribute}="none"`;
  const whole = colour.startsWith("color(") ? 255 : 1;
  const channels = [red, green, blue].map((channel) => Math.round(channel * whole));
  return `${attribute}="rgb(${channels.join(", ")})"${opacity < 1 ? ` ${attribute}-opacity="${opacity}"` : ""}`;
}

function rectangle(element, style, { x, y, width, height }) {
  const fill = painted("fill", style.backgroundColor);
  const line = lineOf(element, style);
  if (fill === 'fill="none"' && !line) return "";
  const label = element.getAttribute("aria-label");
  const title = label ? `<title>${escapeText(label)}</title>` : "";
  const box = [x, y, width, height].map((value) => value.toFixed(1));
  return (
    `<rect x="${box[0]}" y="${box[1]}" width="${box[2]}" height="${box[3]}" ` +
    `${fill}${line}>${title}</rect>${element.matches(".moved") ? cornerMark(x + width, y + height) : ""}`
  );
}

/** Return the marked corner of a cell whose element moves. */
function cornerMark(right, bottom) {
  const [x, y, leg] = [right, bottom, MARK].map((value) => value.toFixed(1));
  return `<path d="M${x} ${y}v-${leg}l-${leg} ${leg}z" ${painted("fill", getComputedStyle(document.body).color)}/>`;
}

/** Return the outline of a cell: the highlight ring, or the border. */
function lineOf(element, style) {
  if (element.matches(".is-lane, .is-here")) {
    return ` ${painted("stroke", getComputedStyle(document.body).color)} stroke-width="2"`;
  }
  const bordered = ["Top", "Right"].some((side) => parseFloat(style[`border${side}Width`]) > 0);
  return bordered ? ` ${painted("stroke", style.borderRightColor)}` : "";
}

/** Return the text of a node, with the page's line breaks. */
function lines(node, style, left, top) {
  const range = document.createRange();
  const found = [];
  let line = null;
  for (const { index, segment } of words(node.textContent)) {
    range.setStart(node, index);
    range.setEnd(node, index + segment.length);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    if (line && Math.abs(line.box.top - box.top) < 2) line.text += segment;
    else found.push((line = { box, text: segment }));
  }
  return found.map(({ box, text }) => {
    const x = (box.left - left).toFixed(1);
    const y = (box.top - top + box.height * BASELINE).toFixed(1);
    const weight = Number(style.fontWeight) > 500 ? ' font-weight="bold"' : "";
    return (
      `<text x="${x}" y="${y}" font-size="${parseFloat(style.fontSize)}" ` +
      `${painted("fill", style.color)}${weight}>${escapeText(text.trimEnd())}</text>`
    );
  });
}

function words(text) {
  return [...text.matchAll(/\S+\s*|^\s+/g)].map((found) => ({ index: found.index, segment: found[0] }));
}
