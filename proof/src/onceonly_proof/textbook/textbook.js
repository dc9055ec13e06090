"use strict";
// Without this script all steps are there, one below the other. It shows one at a time: by buttons, and by arrow keys.
const pictures = [...document.querySelectorAll("section[data-steps]")].map((section) => {
  const steps = [...section.querySelectorAll(":scope > ol > li")];
  const bar = document.createElement("div");
  bar.className = "tb-bar";
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", `Steps of: ${section.querySelector("h2").textContent}`);
  const button = (text, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", act);
    bar.append(made);
    return made;
  };
  let at = 0;
  const show = (to, told) => {
    at = Math.max(0, Math.min(steps.length - 1, to));
    steps.forEach((step, number) => { step.hidden = number !== at; });
    named.forEach((each, number) => each.setAttribute("aria-pressed", String(number === at)));
    before.disabled = at === 0;
    after.disabled = at === steps.length - 1;
    if (told) {
      last = picture;
      history.replaceState(null, "", `#${steps[at].id}`);
    }
  };
  const before = button("\u2190 before", () => show(at - 1, true));
  const named = steps.map((step, number) => button(step.dataset.name, () => show(number, true)));
  const after = button("next \u2192", () => show(at + 1, true));
  section.querySelector("ol").before(bar);
  section.querySelector("ol").setAttribute("aria-live", "polite");
  const picture = { section, steps, show, move: (by) => show(at + by, true) };
  show(0, false);
  return picture;
});
let last = null;
const near = () => {
  const own = pictures.find((each) => each.section.contains(document.activeElement));
  const seen = pictures.find((each) => each.section.getBoundingClientRect().bottom > 80);
  return own || last || seen;
};
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const picture = by && near();
  if (!picture) return;
  event.preventDefault();
  picture.move(by);
});
const follow = () => {
  const id = decodeURIComponent(location.hash.slice(1));
  for (const picture of pictures) {
    const number = picture.steps.findIndex((step) => step.id === id);
    if (number >= 0) {
      picture.show(number, false);
      last = picture;
      picture.steps[number].scrollIntoView({ block: "nearest" });
    }
  }
};
window.addEventListener("hashchange", follow);
follow();
