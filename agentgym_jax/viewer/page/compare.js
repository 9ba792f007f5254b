// The same task twice, turn beside turn.

class CompareView {
  constructor(store, go) {
    this.store = store;
    this.go = go;
    this.section = byId("compare");
  }

  /** Tasks that were played in more than one file, as numbers of a table. */
  repeatedTasks() {
    const { item } = this.store.columns;
    if (!item) return [];
    const seen = new Map();
    item.index.forEach((task, i) => {
      if (!seen.has(task)) seen.set(task, new Set());
      seen.get(task).add(this.store.fileOf[i]);
    });
    return [...seen].filter(([, files]) => files.size > 1).map(([task]) => task);
  }

  async show(links) {
    const tasks = this.repeatedTasks();
    const title = el("h2", { id: "compare-title" }, "The same task at two steps");
    if (!tasks.length) {
      this.section.replaceChildren(title, el("p", { class: "quiet" },
        "No task of this run was played at two steps: evaluations repeat theirs, training seldom does."));
      return;
    }
    const [a, b] = this.chosen(links, tasks);
    const token = (this.token = {});
    const episodes = await Promise.all([this.store.episode(a), this.store.episode(b)]);
    if (this.token !== token) return;
    this.section.replaceChildren(title, this.form(tasks, a, b), this.table(episodes));
  }

  /** The linked episodes, else the first and last of the first task whose outcome changed. */
  chosen(links, tasks) {
    const found = links.map((link) => this.store.find(link));
    if (found.length === 2 && found.every((i) => i >= 0)) return found;
    const { item, success } = this.store.columns;
    const ends = (task) => {
      const all = item.index.map((t, i) => (t === task ? i : -1)).filter((i) => i >= 0);
      return [all[0], all[all.length - 1]];
    };
    for (const task of tasks.slice(0, 200)) {
      const [a, b] = ends(task);
      if (!success[a] && success[b]) return [a, b];
    }
    return ends(tasks[0]);
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
        const all = item.index.map((t, i) => (t === Number(event.target.value) ? i : -1)).filter((i) => i >= 0);
        this.go({ compare: [link(all[0]), link(all[all.length - 1])] });
      } } }, names.map(([t, name]) => el("option", { value: t, selected: t === task }, `${name} · ${goalOf.get(t)}`)))),
      pick("Left", a, b, true), pick("Right", b, a, false));
  }

  name(i) {
    const row = this.store.row(i);
    return `${row.kind === "eval" ? "evaluation" : "step"} ${row.step}, sample ${row.sample}: ` +
      `${(OUTCOMES[row.outcome] || [row.outcome])[0]}, ${plural(row.turns, "turn")}`;
  }

  table(episodes) {
    const drawings = episodes.map(worldDrawing);
    const longest = Math.max(...episodes.map((e) => e.turns.length));
    const lines = Array.from({ length: longest }, (_, k) => el("tr", {},
      el("th", { scope: "row" }, String(k + 1)),
      episodes.map((episode) => this.cell(episode.turns[k]))));
    return el("table", { class: "compare" },
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Turn"), episodes.map((e) =>
          el("th", { scope: "col" },
            el("a", { href: `#episode=${e.row.link}` }, `${e.row.kind === "eval" ? "Evaluation" : "Step"} ${e.row.step}`),
            " ", outcomeBadge(e.row.outcome), el("span", { class: "quiet" }, ` reward ${short(e.row.reward)}`))))),
        el("tbody", {},
          el("tr", {}, el("th", { scope: "row" }, "End"), episodes.map((e, i) =>
            el("td", { class: "world" }, drawings[i] ? drawings[i](e.turns.length) : "–"))),
          lines));
  }

  cell(turn) {
    if (!turn) return el("td", { class: "over" }, el("span", { class: "quiet" }, "over"));
    return el("td", {},
      el("p", {}, el("code", {}, turn.action === null ? turn.text : turn.action), " ",
        turn.action === null ? el("span", { class: "badge bad" }, "unreadable") : null,
        turn.isRefused ? el("span", { class: "badge cut" }, "refused") : null,
        turn.reward ? el("span", { class: "badge good" }, short(turn.reward)) : null),
      el("details", {}, el("summary", {}, "Observation"), el("pre", { class: "text" }, turn.observation)));
  }
}
