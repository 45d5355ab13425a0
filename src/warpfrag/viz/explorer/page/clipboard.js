// Copy to the clipboard, even if the browser denies clipboard access to pages on disk.

import { byId } from "./html.js";

let timer = 0;

/** Copy a text, and confirm it on the page. */
export async function copyText(text, what) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    done = copyBySelection(text);
  }
  byId("toast").textContent = done ? `Copied ${what}.` : "The browser refused to copy.";
  byId("toast").classList.add("shown");
  clearTimeout(timer);
  timer = setTimeout(() => byId("toast").classList.remove("shown"), 2500);
}

function copyBySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "hidden";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
