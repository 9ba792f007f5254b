"""Tables that describe the actions of SciWorld, WebShop and ALFWorld as functions.

Names and action texts are those of AgentGym's adapters, so its demonstrations can be used. Where
the adapters disagree, the tables follow AgentGym's list of valid functions and the simulator.
"""

from collections.abc import Mapping

from agentgym_jax.client.calls import Function

SCIWORLD: Mapping[str, Function] = {
    "open": Function("open a container or a door", ("open {obj}",)),
    "close": Function("close a container or a door", ("close {obj}",)),
    "activate": Function("switch a device on", ("activate {obj}",)),
    "deactivate": Function("switch a device off", ("deactivate {obj}",)),
    "connect": Function(
        "join two ends of electrical parts, such as a wire's terminal 1 and a battery's anode",
        ("connect {obj1} to {obj2}",),
    ),
    "disconnect": Function("take an electrical part out of its circuit", ("disconnect {obj}",)),
    "use": Function(
        "use a tool, for example a thermometer on a substance",
        ("use {tool}", "use {tool} on {obj}"),
    ),
    "lookaround": Function("see the room you are in", ("look around",)),
    "lookat": Function("see one thing more closely", ("look at {obj}",)),
    "lookin": Function("see the content of a container", ("look in {obj}",)),
    "examine": Function("have a thing described", ("examine {obj}",)),
    "read": Function("read a note, recipe or book", ("read {obj}",)),
    "move": Function("put a thing into or onto another one", ("move {obj} to {container}",)),
    "pickup": Function("take a thing into your inventory", ("pick up {obj}",)),
    "drop": Function("put a thing of your inventory down here", ("drop {obj}",)),
    "pour": Function("pour a liquid into a container", ("pour {liq} into {container}",)),
    "dunk": Function("dip a container into a liquid", ("dunk {container} into {liq}",)),
    "mix": Function("let the contents of a container react with each other", ("mix {container}",)),
    "goto": Function("go to a room next to this one, through an open door", ("go to {loc}",)),
    "eat": Function("eat something", ("eat {food}",)),
    "flush": Function("flush a toilet", ("flush {obj}",)),
    "focus": Function(
        "declare that this is the thing the task asks for; the wrong thing ends the task",
        ("focus on {obj}",),
    ),
    "wait": Function(
        "let ten moments pass, or with the duration 1 a single one", ("wait", "wait{duration}")
    ),
    "choose": Function("answer a question of which of several things you meant", ("{option}",)),
    "task": Function("read the task again", ("task",)),
    "inventory": Function("see what you carry", ("inventory",)),
}

WEBSHOP: Mapping[str, Function] = {
    "search": Function(
        "look for products with your own keywords, on the page with the search bar",
        ("search[{keywords}]",),
    ),
    "click": Function(
        "follow one of the things on the page that can be clicked, named by its text",
        ("click[{item}]",),
    ),
}

ALFWORLD: Mapping[str, Function] = {
    "goto": Function("walk to a piece of furniture or a place", ("go to {recep}",)),
    "take": Function("take an object from its place", ("take {obj} from {recep}",)),
    "put": Function("put what you carry down there", ("put {obj} in/on {recep}",)),
    "open": Function("open something to see and reach inside", ("open {recep}",)),
    "close": Function("close it", ("close {recep}",)),
    "toggle": Function("switch an object on or off", ("toggle {obj}",)),
    "heat": Function("heat what you carry, with a microwave", ("heat {obj} with {recep}",)),
    "cool": Function("cool what you carry, with a fridge", ("cool {obj} with {recep}",)),
    "clean": Function("clean what you carry, with a sink", ("clean {obj} with {recep}",)),
    "examine": Function(
        "look closely at something, if need be in the light of an object",
        ("examine {recep}", "examine {recep} with {obj}"),
    ),
    "use": Function("use an object, for instance light a lamp", ("use {obj}",)),
    "inventory": Function("see what you carry", ("inventory",)),
    "look": Function("see your position and the objects near you", ("look",)),
}
