"""JavaScript that is run in pages."""

# Script that runs first in every document. It sets `Date` to the clock of the embedded sites: 1
# March 2024, 12:00:00 UTC, plus the elapsed time. `performance.now()` is unchanged, because
# animations use it.
CALENDAR = """(() => {
  const Real = Date, start = Real.UTC(2024, 2, 1, 12);
  const now = () => start + Math.floor(performance.now());
  window.Date = class Date extends Real {
    constructor(...parts) { if (parts.length) super(...parts); else super(now()); }
    static now() { return now(); }
  };
})()"""

WATCH = """(() => {
  const watch = { requests: 0, changes: 0 };
  Object.defineProperty(window, "__watch", { value: watch });
  new MutationObserver(() => { watch.changes++; }).observe(
    document, { subtree: true, childList: true, attributes: true, characterData: true });
  const send = XMLHttpRequest.prototype.send;
  XMLHttpRequest.prototype.send = function (...parts) {
    watch.requests++;
    this.addEventListener("loadend", () => { watch.requests--; }, { once: true });
    return send.apply(this, parts);
  };
  const realFetch = window.fetch;
  window.fetch = (...parts) => {
    watch.requests++;
    return realFetch(...parts).finally(() => { watch.requests--; });
  };
})()"""

# Resolves to true when the page has settled: it is loaded and has no open request, no change from
# one frame to the next, and no running animation except endless ones. After `limit` milliseconds it
# resolves to false.
QUIET = """limit => new Promise(done => {
  const watch = window.__watch, end = performance.now() + limit;
  let changes = -1, top = -1;
  const isMoving = () => document.getAnimations().some(animation =>
    animation.playState === "running" && animation.effect &&
    Number.isFinite(animation.effect.getComputedTiming().endTime));
  const look = () => {
    const isChanged = top !== window.scrollY || (watch && watch.changes !== changes);
    const isBusy = isChanged || document.readyState !== "complete" ||
      (watch && watch.requests > 0) || isMoving();
    changes = watch ? watch.changes : -1;
    top = window.scrollY;
    if (!isBusy) done(true);
    else if (performance.now() > end) done(false);
    else requestAnimationFrame(() => setTimeout(look, 0));
  };
  requestAnimationFrame(() => setTimeout(look, 0));
})"""

# Returns the type of a field whose value must be set directly, because keys have another meaning in
# it; "" for other elements.
FIELD_KIND = """function () {
  if (this instanceof HTMLSelectElement) return "select";
  if (this instanceof HTMLOptionElement && this.closest("select")) {
    const select = this.closest("select");
    return select.multiple || select.size > 1 ? "" : "option";
  }
  const set = ["date", "time", "datetime-local", "month", "week", "color", "range"];
  return this instanceof HTMLInputElement && set.includes(this.type) ? this.type : "";
}"""

# Moves the cursor to the end, so that typed text is appended to the field's content, wherever the
# click was.
TO_END = """function () {
  if (typeof this.value === "string" && this.setSelectionRange) {
    try { this.setSelectionRange(this.value.length, this.value.length); } catch { }
  }
}"""

FOCUS = """function () { this.focus(); }"""

# Selects the option that equals `wanted`, or else the first one that begins with `wanted`, and
# returns true. If there is none, it returns the texts of the enabled options.
CHOOSE = """function (wanted) {
  const clean = text => text.replace(/\\s+/g, " ").trim().toLowerCase();
  const options = [...this.options].filter(option => !option.disabled);
  const texts = options.map(option => clean(option.label));
  let at = texts.indexOf(clean(wanted));
  if (at < 0) at = texts.findIndex(text => clean(wanted) && text.startsWith(clean(wanted)));
  if (at < 0) return options.map(option => option.label.replace(/\\s+/g, " ").trim());
  const option = options[at];
  if (this.multiple) option.selected = true; else this.value = option.value, option.selected = true;
  this.dispatchEvent(new Event("input", { bubbles: true }));
  this.dispatchEvent(new Event("change", { bubbles: true }));
  this.blur();
  return true;
}"""

CHOOSE_THIS = """function () {
  const select = this.closest("select");
  this.selected = true;
  select.dispatchEvent(new Event("input", { bubbles: true }));
  select.dispatchEvent(new Event("change", { bubbles: true }));
  select.blur();
}"""

# Returns true if the value has the field's format.
SET_VALUE = """function (value) {
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set;
  const before = this.value;
  set.call(this, value);
  if (value && !this.value) { set.call(this, before); return false; }
  this.dispatchEvent(new Event("input", { bubbles: true }));
  this.dispatchEvent(new Event("change", { bubbles: true }));
  return true;
}"""

SCROLL = """share => window.scrollBy({ top: share * window.innerHeight, behavior: "instant" })"""
