// SciWorld: known rooms and the objects in the present room, parsed from the observations.

// Positions of ScienceWorld's rooms in a grid of 4 by 3; other rooms are drawn below.
const ROOM_PLACES = {
  greenhouse: [0, 0], "green house": [0, 0], outside: [1, 0], foundry: [2, 0], "art studio": [3, 0],
  bathroom: [0, 1], kitchen: [1, 1], hallway: [2, 1], workshop: [3, 1],
  "living room": [1, 2], bedroom: [2, 2],
};
const [ROOM_WIDTH, ROOM_HEIGHT] = [104, 58];

/** Returns the known rooms after each text: {here, rooms: name -> {things, isVisited}, doors: "a|b" -> isOpen}. */
function roomWalk(texts) {
  const rooms = new Map();
  const doors = new Map();
  let here = null;
  return texts.map((text) => {
    const moved = text.match(/You move to the ([^.\n]+)\./);
    if (moved) here = moved[1];
    const named = text.match(/This (?:room|outside location) is called the ([^.\n]+)\./);
    if (named) {
      here = named[1];
      rooms.set(here, { isVisited: true, things: thingsIn(text) });
      for (const [, other, state] of text.matchAll(/A door to the ([^(\n]+?) \(that is (open|closed)\)/g)) {
        doors.set([here, other].sort().join("|"), state === "open");
        if (!rooms.has(other)) rooms.set(other, { isVisited: false, things: [] });
      }
    }
    if (here && !rooms.has(here)) rooms.set(here, { isVisited: true, things: [] });
    else if (here) rooms.set(here, { ...rooms.get(here), isVisited: true });
    openedDoor(text, here, rooms, doors);
    return { here, rooms: new Map(rooms), doors: new Map(doors) };
  });
}

/** "The door is now open." names no room, so the given text includes the action, which does. */
function openedDoor(text, here, rooms, doors) {
  const match = text.match(/(open|close) door to ([^\n]+)\n.*now (?:open|closed)/i);
  if (!match || !here) return;
  const other = match[2].trim().toLowerCase();
  doors.set([here, other].sort().join("|"), match[1].toLowerCase() === "open");
  // An agent that has not looked around may use a door that no earlier text names.
  if (!rooms.has(other)) rooms.set(other, { isVisited: false, things: [] });
}

function thingsIn(text) {
  const part = text.split(/In it, you see:|Here you see:/)[1];
  if (!part) return [];
  return part.split(/You also see:/)[0].split("\n").map((line) => line.trim())
    .filter((line) => line && line !== "the agent" && line !== "a substance called air");
}

function roomPlaces(rooms) {
  const places = new Map();
  let below = 0;
  for (const name of rooms.keys()) {
    places.set(name, Object.hasOwn(ROOM_PLACES, name) ? ROOM_PLACES[name] : [below % 4, 3 + Math.floor(below++ / 4)]);
  }
  return places;
}

/** Draws the map and the present room. */
function sciworldWorld({ here, rooms, doors }) {
  const places = roomPlaces(rooms);
  const rows = 1 + Math.max(...[...places.values()].map(([, y]) => y));
  const centre = ([x, y]) => [x * ROOM_WIDTH + ROOM_WIDTH / 2, y * ROOM_HEIGHT + ROOM_HEIGHT / 2];
  const lines = [...doors].map(([pair, isOpen]) => {
    const [a, b] = pair.split("|").map((name) => centre(places.get(name)));
    return svg("line", { class: isOpen ? "passage open" : "passage", x1: a[0], y1: a[1], x2: b[0], y2: b[1] },
      svg("title", {}, `${pair.replace("|", " – ")}: ${isOpen ? "open" : "closed"}`));
  });
  const boxes = [...rooms].map(([name, room]) => {
    const [x, y] = centre(places.get(name));
    const state = name === here ? "here" : room.isVisited ? "visited" : "seen";
    return svg("g", { class: `room ${state}` },
      svg("rect", { x: x - 45, y: y - 16, width: 90, height: 32, rx: 6 }),
      svg("text", { x, y: y + 4, "text-anchor": "middle" }, name));
  });
  const visited = [...rooms].filter(([, room]) => room.isVisited).map(([name]) => name);
  const label = `Map of rooms. The agent is in the ${here}. Visited: ${visited.join(", ")}.`;
  return [
    svg("svg", { class: "rooms", viewBox: `0 0 ${4 * ROOM_WIDTH} ${rows * ROOM_HEIGHT}`, role: "img", "aria-label": label },
      lines, boxes),
    el("p", { class: "quiet" }, "Solid lines: open doors. Dashed: closed. Only what was said so far."),
    el("h4", {}, `In the ${here}`),
    rooms.get(here).things.length
      ? el("ul", { class: "things" }, rooms.get(here).things.map((thing) => el("li", {}, thing)))
      : el("p", { class: "quiet" }, "not looked around yet"),
  ];
}
