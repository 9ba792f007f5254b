"""Environments at the start of an episode, and the episodes of their scripted agents."""


def started(make, data_idx):
    """Returns a new environment at the start of a task."""
    environment = make()
    environment.reset(data_idx)
    return environment


def play_expert(environment, max_turns):
    """Plays the expert to the end; returns the last result and the number of actions."""
    for turn in range(1, max_turns + 1):
        result = environment.step(environment.expert_action())
        if result.done:
            return result, turn
    return result, turn
