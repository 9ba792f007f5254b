// Two episodes of one task, side by side.

class CompareView {
  constructor(store, go) {
    this.store = store;
    this.go = go;
    this.section = byId("compare");
  }

  /** Returns the tasks with episodes in more than one file, as indices of the task table. */
  repeatedTasks() {
    const { item } = this.store.columns;
    if (!item) return [];
    const seen = new Map();
    item.index.forEach((task, i) => {
      if (!seen.has(task)) seen.set(task, new Set());
      seen.get(task).add(this.store.fileOf[i]);
    });
    const { files, index } = this.store;
    const isRepeated = (own) => (index.runs ? new Set([...own].map((file) => files[file].run)).size > 1 : own.size > 1);
    return [...seen].filter(([, own]) => isRepeated(own)).map(([task]) => task);
  }

  async show(links) {
    const tasks = this.repeatedTasks();
    const title = el("h2", { id: "compare-title" }, this.store.index.runs ? "The same task in both runs" : "The same task at two steps");
    if (!tasks.length) {
      this.section.replaceChildren(title, el("p", { class: "quiet" },
        this.store.index.runs ? "No task was played in both runs."
          : "No task of this run was played at two steps: evaluations repeat theirs, training seldom does."));
      return;
    }
    const [a, b] = this.chosen(links, tasks);
    const token = (this.token = {});
    const episodes = await Promise.all([this.store.episode(a), this.store.episode(b)]);
    if (this.token !== token) return;
    this.episodes = episodes;
    this.drawings = episodes.map(worldDrawing);
    this.longest = Math.max(...episodes.map((e) => e.turns.length));
    put(this.section, title, this.form(tasks, a, b), this.table());
    this.select(this.longest);
  }

  /** Draws the states of both episodes after a turn; a finished episode keeps its last state. */
  select(turn) {
    this.turn = Math.max(0, Math.min(this.longest, turn));
    this.episodes.forEach((episode, i) => {
      const at = Math.min(this.turn, episode.turns.length);
      if (this.drawings[i]) put(this.worlds[i], this.drawings[i](at));
    });
    this.caption.textContent = this.turn ? `After ${this.turn}` : "Start";
    this.lines.forEach((line, k) => line.classList.toggle("current", k + 1 === this.turn));
  }

  move(by) {
    if (!this.episodes) return;
    this.select(this.turn + by);
    const line = this.lines[this.turn - 1];
    if (line) line.scrollIntoView({ block: "nearest" });
    const said = this.episodes.map((e) => (e.turns[this.turn - 1] || {}).action || "over");
    announce(this.turn ? `Turn ${this.turn}: left ${said[0]}, right ${said[1]}` : "Start");
  }

  /** Returns the linked episodes, otherwise the first and last of the first task whose outcome changed. */
  chosen(links, tasks) {
    const found = links.map((link) => this.store.find(link));
    if (found.length === 2 && found.every((i) => i >= 0)) return found;
    const { success } = this.store.columns;
    const [mode] = this.store.index.comparison?.tasks || [];
    const different = mode && (mode.gained[0] || mode.lost[0]);
    if (different) return different;
    const pairs = tasks.slice(0, 200).map((task) => this.ends(task));
    const learned = pairs.filter(([x, y]) => !success[x] && success[y]);
    const isDrawn = (pair) => pair.every((i) => this.store.replayed.has(i));
    return learned.find(isDrawn) || learned[0] || pairs.find(isDrawn) || pairs[0];
  }

  /** Returns the first and the last episode of a task that were decoded alike; of two runs, the last of each. */
  ends(task) {
    const { item } = this.store.columns;
    const all = item.index.map((t, i) => (t === task ? i : -1)).filter((i) => i >= 0);
    const { files, fileOf, index } = this.store;
    const mode = (i) => this.store.value("mode", i);
    const first = all[0];
    if (!index.runs) {
      const alike = all.filter((i) => mode(i) === mode(first));
      return [first, alike[alike.length - 1]];
    }
    const [a, b] = [0, 1].map((run) => all.filter((i) => files[fileOf[i]].run === run));
    const last = b[b.length - 1];
    const alike = a.filter((i) => mode(i) === mode(last));
    return [(alike.length ? alike : a).pop(), last];
  }

  form(tasks, a, b) {
    const { item, goal } = this.store.columns;
    const task = item.index[a];
    const names = tasks.map((t) => [t, item.table[t]]);
    const link = (i) => this.store.row(i).link;
    const goalOf = new Map();
    item.index.forEach((t, i) => goalOf.set(t, goal.table[goal.index[i]]));
    const same = this.store.sameTask(a);
    const pick = (words, chosen, other, isFirst) => labelled(words, el("select", {
      on: { change: (event) => this.go({ compare: isFirst ? [event.target.value, link(other)] : [link(other), event.target.value] }) },
    }, same.map((i) => el("option", { value: link(i), selected: i === chosen }, this.name(i)))));
    return el("div", { class: "filters" },
      labelled("Task", el("select", { on: { change: (event) => {
        this.go({ compare: this.ends(Number(event.target.value)).map(link) });
      } } }, names.map(([t, name]) => el("option", { value: t, selected: t === task }, `${name} · ${goalOf.get(t)}`)))),
      pick("Left", a, b, true), pick("Right", b, a, false));
  }

  name(i) {
    const row = this.store.row(i);
    return `${row.when}, sample ${row.sample}: ${outcomeWords(row.outcome)}, ${plural(row.turns, "turn")}`;
  }

  table() {
    const { episodes } = this;
    this.lines = Array.from({ length: this.longest }, (_, k) => el("tr", { on: { click: () => this.select(k + 1) } },
      el("th", { scope: "row" }, String(k + 1)),
      episodes.map((episode) => this.cell(episode.turns[k]))));
    this.caption = el("th", { scope: "row" });
    this.worlds = episodes.map(() => el("td", { class: "world" }, "–"));
    return el("table", { class: "compare" },
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Turn"), episodes.map((e) =>
          el("th", { scope: "col" },
            el("a", { href: `#episode=${e.row.link}` }, e.row.when.charAt(0).toUpperCase() + e.row.when.slice(1)),
            " ", outcomeBadge(e.row.outcome), el("span", { class: "quiet" }, ` reward ${short(e.row.reward)}`))))),
        el("tbody", {},
          this.drawings.some(Boolean) ? el("tr", { class: "worlds" }, this.caption, this.worlds) : null,
          this.lines));
  }

  cell(turn) {
    if (!turn) return el("td", { class: "over" }, el("span", { class: "quiet" }, "over"));
    return el("td", {},
      el("p", {}, el("code", {}, turn.action === null ? turn.text : turn.action), " ",
        failureBadges(turn),
        turn.reward ? el("span", { class: "badge good" }, short(turn.reward)) : null),
      el("details", {}, el("summary", {}, "Observation"), el("pre", { class: "text" }, turn.observation)));
  }
}
