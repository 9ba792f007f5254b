// BabyAI: the whole grid if the episode was replayed, otherwise the view that observations describe.

const FACING = { right: [1, 0], down: [0, 1], left: [-1, 0], up: [0, -1] };
// Minigrid's text form of a cell, for states without `things`: a letter for the kind, one for the colour.
const COLOUR_LETTERS = { R: "red", B: "blue", P: "purple", Y: "yellow", G: "green or grey" };
const KIND_LETTERS = { A: "ball", B: "box", D: "closed door", G: "goal", K: "key", L: "locked door", V: "lava" };
const VIEW = 7; // cells that the agent sees, ahead and across

/** Returns the objects of a state: [{x, y, colour, kind}]; walls have the kind `wall`. */
function gridThings(state) {
  const walls = cellsOf(state.grid).filter((cell) => cell.letters === "WG")
    .map(({ x, y }) => ({ x, y, kind: "wall", colour: "grey" }));
  if (!state.things) return walls.concat(cellsOf(state.grid).map(letteredThing).filter(Boolean));
  return walls.concat(state.things.map(([x, y, name]) => ({ x, y, ...namedThing(name) })));
}

/** Parses minigrid's text form of the grid to [{x, y, letters}]. */
function cellsOf(grid) {
  return grid.flatMap((line, y) =>
    Array.from({ length: line.length / 2 }, (_, x) => ({ x, y, letters: line.slice(2 * x, 2 * x + 2) })));
}

/** Returns colour and kind of a name such as `red closed door`. */
function namedThing(name) {
  const [colour, ...kind] = name.split(" ");
  return { colour, kind: kind.join(" ") };
}

function letteredThing({ x, y, letters }) {
  if (letters === "__") return { x, y, kind: "open door", colour: "grey" };
  const [kind, colour] = [KIND_LETTERS[letters[0]], COLOUR_LETTERS[letters[1]]];
  return kind && colour ? { x, y, kind, colour } : null;
}

/** Returns the visible cells as a rectangle. */
function sightOf([x, y], facing) {
  const [dx, dy] = FACING[facing];
  const half = (VIEW - 1) / 2;
  const corner = (p, d) => (d > 0 ? p : d < 0 ? p - VIEW + 1 : p - half);
  return { x: corner(x, dx), y: corner(y, dy), width: VIEW, height: VIEW };
}

/** Draws one object in a cell of size 1. */
function drawnThing({ x, y, kind, colour }) {
  const group = svg("g", { class: `thing ${colour.split(" ").pop()}`, transform: `translate(${x} ${y})` });
  group.append(svg("title", {}, kind === "wall" ? "wall" : `${colour} ${kind}`));
  const add = (tag, attributes) => group.append(svg(tag, attributes));
  if (kind === "wall") add("rect", { class: "wall", width: 1, height: 1 });
  else if (kind === "ball") add("circle", { class: "solid", cx: 0.5, cy: 0.5, r: 0.31 });
  else if (kind === "box") {
    add("rect", { class: "outline", x: 0.2, y: 0.2, width: 0.6, height: 0.6 });
    add("path", { class: "outline", d: "M.2 .5h.6" });
  } else if (kind === "key") {
    add("circle", { class: "outline", cx: 0.5, cy: 0.3, r: 0.14 });
    add("path", { class: "outline", d: "M.5 .44V.85M.5 .68h.16M.5 .82h.16" });
  } else if (kind === "open door") add("path", { class: "outline", d: "M.08 .92V.08H.24V.92Z" });
  else if (kind === "closed door" || kind === "locked door") {
    add("rect", { class: "door", x: 0.06, y: 0.06, width: 0.88, height: 0.88 });
    if (kind === "locked door") add("path", { class: "mark", d: "M.5 .38V.66M.42 .38a.08 .08 0 1 1 .16 0" });
    else add("circle", { class: "mark-solid", cx: 0.76, cy: 0.52, r: 0.08 });
  } else add("rect", { class: "solid", x: 0.1, y: 0.1, width: 0.8, height: 0.8 });
  return group;
}

function drawnAgent([x, y], facing) {
  const turn = { right: 0, down: 90, left: 180, up: 270 }[facing];
  return svg("path", { class: "agent", d: "M-.3 -.3L.38 0L-.3 .3Z",
    transform: `translate(${x + 0.5} ${y + 0.5}) rotate(${turn})` });
}

/** Draws the whole grid after `at` turns, with the agent's path so far. */
function babyaiGrid(worlds, at) {
  const state = worlds[at];
  const [width, height] = [state.grid[0].length / 2, state.grid.length];
  const things = gridThings(state);
  const described = things.filter((t) => t.kind !== "wall").map((t) => `${t.colour} ${t.kind}`);
  const label = `Grid of ${width} by ${height} cells. The agent is at column ${state.position[0]}, row ` +
    `${state.position[1]}, facing ${state.facing}` +
    `${state.carrying ? `, carrying a ${state.carrying}` : ""}. There are: ${described.join(", ") || "no things"}.`;
  const drawing = svg("svg", { class: "grid-world", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    svg("rect", { class: "floor", width, height }),
    svg("rect", { class: "sight", ...sightOf(state.position, state.facing) }),
    svg("path", { class: "way", d: walkedPath(worlds.slice(0, at + 1)) }),
    things.map(drawnThing),
    drawnAgent(state.position, state.facing));
  return [
    drawing,
    el("p", { class: "quiet" }, `${state.level} · ${state.moves} of ${state.max_moves} moves · ` +
      (state.carrying ? `carries a ${state.carrying}` : "carries nothing")),
  ];
}

/** Returns the path through the cells that the agent entered; it is interrupted where they are unknown. */
function walkedPath(worlds) {
  let [x, y] = worlds[0].position;
  let line = `M${x + 0.5} ${y + 0.5}`;
  for (const world of worlds.slice(1)) {
    for (const [nextX, nextY] of world.walked || [world.position]) {
      const isNext = Math.abs(nextX - x) + Math.abs(nextY - y) <= 1;
      line += `${isNext ? "L" : "M"}${nextX + 0.5} ${nextY + 0.5}`;
      [x, y] = [nextX, nextY];
    }
  }
  return line;
}

const SEEN = /There is a ([a-z]+ (?:(?:open|closed|locked) )?[a-z]+) \d+ (?:right in front of you (\d+) steps away|(\d+) steps in front of you and (\d+) steps to your (left|right))/g;

/** Parses the visible objects of an observation: [{kind, colour, ahead, right}]. */
function toldThings(text) {
  return [...text.matchAll(SEEN)].map(([, name, straight, ahead, aside, side]) => {
    const right = straight === undefined ? Number(aside) * (side === "left" ? -1 : 1) : 0;
    return { ...namedThing(name), ahead: Number(straight === undefined ? ahead : straight), right };
  });
}

/** Draws the objects of an observation; the agent is at the bottom and faces up. */
function babyaiView(text) {
  const things = toldThings(text);
  const wall = text.match(/You are facing a (\w+) (\d+) steps away/);
  const half = (VIEW - 1) / 2;
  const place = (t) => ({ ...t, x: half + t.right, y: VIEW - 1 - t.ahead });
  const label = `What the agent sees: ${things.map((t) => `${t.colour} ${t.kind}, ${t.ahead} ahead, ` +
    `${Math.abs(t.right)} to the ${t.right < 0 ? "left" : "right"}`).join("; ") || "no things"}.`;
  const carrying = text.match(/You are carrying an? ([^.]+)\./);
  return [
    svg("svg", { class: "grid-world view", viewBox: `0 0 ${VIEW} ${VIEW}`, role: "img", "aria-label": label },
      svg("rect", { class: "floor", width: VIEW, height: VIEW }),
      Array.from({ length: VIEW - 1 }, (_, i) =>
        svg("path", { class: "cells", d: `M0 ${i + 1}H${VIEW}M${i + 1} 0V${VIEW}` })),
      wall && wall[1] === "wall"
        ? drawnThing({ kind: "wall", colour: "grey", x: half, y: VIEW - 1 - Number(wall[2]) }) : null,
      things.map((t) => drawnThing(place(t))),
      drawnAgent([half, VIEW - 1], "up")),
    el("p", { class: "quiet" }, `The agent's view, from the observation. ${carrying ? `Carries a ${carrying[1]}.` : "Carries nothing."}`),
  ];
}
