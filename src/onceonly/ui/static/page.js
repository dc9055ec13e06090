// The only script of the page: what is new, and the keyboard. Without it the page is the same, and stands still.
"use strict";
(() => {
  const body = document.body;
  const help = document.getElementById("help");

  // --- live: server-sent events say that something is new, and the page itself is asked for what it is -------------
  const stream = body.dataset.stream;
  let position = body.dataset.position;
  let source = null;
  let refreshing = false;
  let again = false;

  const say = (text, state) => {
    const live = document.getElementById("live");
    if (live && live.textContent !== text) live.textContent = text;
    if (live) live.dataset.state = state;
  };

  // One at a time: an answer that is late must not stand over a newer one.
  const soon = () => {
    again = refreshing;
    if (!refreshing) setTimeout(refresh, 400);
    refreshing = true;
  };

  async function refresh() {
    try {
      again = false;
      const answer = await fetch(location.href, { signal: AbortSignal.timeout(30_000) });
      if (!answer.ok) return say("not live: this page cannot be shown now; load it again to see why", "off");
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const now = fresh.getElementById(part.id);
        if (now && !same(part, now)) replace(part, now);
      }
      age();
      if (source && source.readyState === EventSource.OPEN) say("live", "on");
    } catch {
      say("not live: no answer", "off");
    } finally {
      refreshing = false;
      if (again) soon();
    }
  }

  const same = (part, now) => {
    const bare = (element) => {
      const copy = element.cloneNode(true);
      for (const each of copy.querySelectorAll("[data-since], button[data-copy]")) each.remove();
      for (const each of copy.querySelectorAll("[tabindex='-1']")) each.removeAttribute("tabindex");
      return copy.innerHTML;
    };
    return bare(part) === bare(now);
  };

  // What has the focus, and what is open or scrolled, stays so.
  function replace(part, now) {
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const held = focused ? rows().indexOf(rowOf(focused)) : -1;
    const heldId = focused ? focused.id : "";
    const open = new Set([...part.querySelectorAll("details[open]")].map((each) => each.id));
    const scrolled = [...part.querySelectorAll(".oo-scroll")].map((each) => each.scrollLeft);
    part.innerHTML = now.innerHTML;
    part.className = now.className;
    for (const each of part.querySelectorAll("details")) if (open.has(each.id)) each.open = true;
    part.querySelectorAll(".oo-scroll").forEach((each, number) => (each.scrollLeft = scrolled[number] || 0));
    prepare(part);
    if (heldId && document.getElementById(heldId)) document.getElementById(heldId).focus();
    else if (held >= 0) select(Math.min(held, rows().length - 1));
  }

  function told(event) {
    const record = JSON.parse(event.data);
    position = event.lastEventId;
    const list = document.getElementById("records");
    if (list) {
      const item = document.createElement("li");
      const name = document.createElement("a");
      name.href = `${body.dataset.home}/epoch/${record.position.split(".")[0]}`;
      name.textContent = record.name;
      item.dataset.position = record.position;
      item.append(name, ` ${record.what}${record.at ? ` · ${record.at}` : ""}`);
      list.prepend(item);
      while (list.children.length > Number(list.dataset.max)) list.lastElementChild.remove();
    }
    soon();
  }

  function open() {
    if (!stream || source || document.hidden) return;
    source = new EventSource(position ? `${stream}?after=${encodeURIComponent(position)}` : stream);
    source.addEventListener("open", () => say("live", "on"));
    source.addEventListener("record", told);
    source.addEventListener("state", soon);
    if ("traced" in body.dataset) source.addEventListener("trace", soon);
    source.addEventListener("gap", () => location.reload());
    source.addEventListener("crowded", () => {
      close();
      say("not live: too many tabs look; come back to this one to go on", "off");
    });
    source.addEventListener("ended", () => {
      close();
      say("not live: onceonly ui has ended", "off");
    });
    source.addEventListener("error", () => {
      if (document.getElementById("live").dataset.state !== "off") say("not live: connecting again", "off");
      if (source && source.readyState === EventSource.CLOSED) {
        close();
        soon(); // whoever asks is told why: another onceonly ui may be here by now, which wants its own token
        setTimeout(open, 3000);
      }
    });
  }

  function close() {
    if (source) source.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else open();
  });
  addEventListener("focus", open);
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);

  // --- how long ago ----------------------------------------------------------------------------------------------
  function age() {
    for (const each of document.querySelectorAll(".oo-verdict time")) {
      let since = each.nextElementSibling;
      if (!since || !since.matches("[data-since]")) {
        since = document.createElement("span");
        since.dataset.since = "";
        since.ariaHidden = "true"; // it would be read out each second
        each.after(since);
      }
      const seconds = Math.max(0, Math.round((Date.now() - Date.parse(each.dateTime)) / 1000));
      const [size, unit] = seconds < 120 ? [1, "s"] : seconds < 7200 ? [60, "min"] : seconds < 172800 ? [3600, "h"] : [86400, "d"];
      const least = "atLeast" in each.dataset ? "at least " : "";
      since.textContent = `, for ${least}${Math.floor(seconds / size)} ${unit}`;
    }
  }
  setInterval(() => document.hidden || age(), 1000);

  // --- copying the command ---------------------------------------------------------------------------------------
  function prepare(part) {
    for (const command of part.querySelectorAll(".oo-verdict pre, pre.command")) {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.copy = "";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(command.textContent.trim());
          button.textContent = "Copied";
        } catch {
          getSelection().selectAllChildren(command);
          button.textContent = "Selected: copy it";
        }
      });
      command.after(button);
    }
  }

  // --- the keyboard ----------------------------------------------------------------------------------------------
  const ROW = "main tbody tr, main ol li";
  const rows = () => [...document.querySelectorAll(ROW)].filter((each) => each.offsetParent);
  const rowOf = (element) => element.closest(ROW);

  function select(number) {
    const row = rows()[number];
    if (!row) return;
    const target = row.querySelector("a") || row;
    if (target === row) row.tabIndex = -1;
    target.focus();
    row.scrollIntoView({ block: "nearest" });
  }

  const step = (by) => () => {
    const now = rows().indexOf(rowOf(document.activeElement));
    select(now < 0 ? (by > 0 ? 0 : rows().length - 1) : now + by);
  };
  const follow = (selector) => () => {
    const link = document.querySelector(selector);
    if (link) link.click();
  };
  const focus = (selector) => () => {
    const found = document.querySelector(selector);
    if (found) found.focus();
  };
  const toggle = () => (help.open ? help.close() : help.showModal());

  const keys = {
    ArrowLeft: follow("main a[rel=prev]"),
    ArrowRight: follow("main a[rel=next]"),
    j: step(1),
    k: step(-1),
    e: focus("#go"),
    c: follow("button[data-copy]"),
    n: follow("main a[data-newest]"),
    "?": toggle,
  };
  for (const link of document.querySelectorAll("nav a[data-key]")) keys[link.dataset.key] = () => link.click();

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const on = event.target;
    if (on.closest && on.closest("input, select, textarea")) {
      if (event.key === "Escape") on.blur();
      return;
    }
    // What is wider than the screen is moved by the arrows while it has the focus.
    if (event.key.startsWith("Arrow") && on.matches && on.matches(".oo-scroll") && on.scrollWidth > on.clientWidth) return;
    if (help && help.open && event.key !== "?") return;
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  for (const each of document.querySelectorAll("[data-help]")) {
    each.hidden = false;
    each.addEventListener("click", toggle);
  }

  for (const each of document.querySelectorAll("[data-still]")) each.hidden = true;

  prepare(document);
  age();
  open();
})();
