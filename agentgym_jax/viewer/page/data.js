// Data source: elements of this HTML file, or the server of a live run.

const isLive = document.body.dataset.live === "true";
const KEPT_BUNDLES = 12; // files of episodes that stay decoded

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

async function fetched(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return inflated(await answer.arrayBuffer());
}

async function loadDocument(name) {
  if (isLive) return fetched(`data/${encodeURIComponent(name)}`);
  const element = byId(`data-${name}`);
  if (!element) throw new Error(`this page has no episodes of ${name}`);
  return inflated(fromBase64(element.textContent));
}

/** Data of the run: its summary, and the episodes of a file, which are loaded on demand. */
class Store {
  constructor(index) {
    this.index = index;
    this.bundles = new Map();
    // texts of the tokens of each run, by id
    this.pieces = index.pieces.map((pieces) => new Map(Object.entries(pieces).map(([id, text]) => [Number(id), text])));
    this.worldsOf = new Map();
    this.replayed = new Set(index.replayed);
    this.files = [];
    let first = 0;
    for (const file of index.files) {
      this.files.push({ ...file, first });
      first += file.episodes;
    }
    this.count = first;
    this.fileOf = new Int32Array(first);
    this.files.forEach((file, i) => this.fileOf.fill(i, file.first, file.first + file.episodes));
    this.columns = index.episodes;
  }

  /** Returns one value of an episode; an index of a text is replaced by the text. */
  value(key, i) {
    const column = this.columns[key];
    return Array.isArray(column) ? column[i] : column.table[column.index[i]];
  }

  /** Returns all values of an episode in the list. */
  row(i) {
    const file = this.files[this.fileOf[i]];
    const row = { i, file: file.name, kind: file.kind, step: file.step, run: file.run || 0, number: i - file.first };
    for (const key of Object.keys(this.columns)) {
      if (key !== "number") row[key] = this.value(key, i);
    }
    row.link = `${file.name}/${row.number}`;
    row.when = `${this.index.runs ? `${"AB"[row.run]}, ` : ""}` +
      `${row.kind === "eval" ? "evaluation" : "step"} ${row.step}${row.mode === "greedy" ? ", greedy" : ""}`;
    return row;
  }

  /** Returns the number of the episode in a link such as `step_000029/12`; -1 if it does not exist. */
  find(link) {
    const [name, number] = (link || "").split("/");
    const file = this.files.find((f) => f.name === name);
    const n = Number(number);
    return file && Number.isInteger(n) && n >= 0 && n < file.episodes ? file.first + n : -1;
  }

  /** Returns the numbers of the episodes of the same task, in the order of the steps. */
  sameTask(i) {
    const { index } = this.columns.item;
    const found = [];
    for (let k = 0; k < index.length; k++) if (index[k] === index[i]) found.push(k);
    return found;
  }

  /** Returns the numbers of the samples of the same task in the same file. */
  siblings(i) {
    const file = this.files[this.fileOf[i]];
    const { index } = this.columns.item;
    const found = [];
    for (let k = file.first; k < file.first + file.episodes; k++) {
      if (index[k] === index[i]) found.push(k);
    }
    return found;
  }

  async bundle(name) {
    if (!this.bundles.has(name)) {
      this.bundles.set(name, loadDocument(name));
      if (this.bundles.size > KEPT_BUNDLES) this.bundles.delete(this.bundles.keys().next().value);
    }
    const bundle = await this.bundles.get(name);
    for (const [id, text] of Object.entries(bundle.pieces || {})) this.pieces[0].set(Number(id), text);
    return bundle;
  }

  /** Returns an episode with texts instead of their numbers. */
  async episode(i) {
    const row = this.row(i);
    const bundle = await this.bundle(row.file);
    const packed = bundle.episodes[row.number];
    const turns = packed.turns.map(([text, action, observation, reward, flags]) => ({
      text: bundle.texts[text],
      action: action < 0 ? null : bundle.texts[action],
      observation: bundle.texts[observation],
      reward,
      isCut: (flags & 1) > 0,
      isRejected: (flags & 2) > 0,
    }));
    return {
      ...packed,
      row,
      turns,
      pieces: this.pieces[row.run],
      opening: packed.opening.map(([from, text]) => ({ from, text: bundle.texts[text] })),
      runs: packed.runs.map((run) => bundle.runs[run]),
      worlds: await this.worlds(row, packed, bundle),
    };
  }

  /** Returns the environment's states; requests them from the server if it can replay the environment. */
  async worlds(row, packed, bundle) {
    if (packed.worlds) return packed.worlds.map((world) => bundle.worlds[world]);
    if (!isLive || !REPLAYED_LIVE.includes(row.environment)) return null;
    if (!this.worldsOf.has(row.link)) {
      this.worldsOf.set(row.link, fetched(`worlds/${row.file}/${row.number}`));
    }
    return this.worldsOf.get(row.link);
  }
}

const REPLAYED_LIVE = ["babyai", "maze"];
