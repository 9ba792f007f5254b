"""Plays with OpenEnv's own client. Run by a Python that has the package openenv.

Prints the observations, rewards, states and facts as one JSON object, given the address of a server
and the actions of an episode of task 3.
"""

import json
import sys

from openenv.core.generic_client import GenericEnvClient

url, *actions = sys.argv[1:]
with GenericEnvClient(base_url=url).sync() as client:
    results = [client.reset(data_idx=3)]
    results += [client.step({"text": action}) for action in actions]
    state = client.state()
seen = [(r.observation["text"], r.reward, r.done, r.metadata["success"]) for r in results]
json.dump({"seen": seen, "state": state}, sys.stdout)
