"""A fake judging endpoint, and episodes for it."""

import collections
import contextlib
import json

from agentgym_jax.client.chat_endpoint import ChatEndpoint
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.judge.cache import VerdictCache
from agentgym_jax.judge.judge import Judge
from agentgym_jax.judge.rubric import Rubric
from agentgym_jax.rollout.interface import CollectStatistics
from agentgym_jax.rollout.scheduler import EpisodeCollector
from tests.builders import trajectory, turn
from tests.fake_server import serving
from tests.waiting import PATIENCE_S

KEY = "sk-very-secret"


def verdict(score=7, reason="fine", **fields):
    """Returns a reply with a verdict, or with the text `score`."""
    text = score if isinstance(score, str) else json.dumps({"score": score, "reason": reason})
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return 200, {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


class FakeJudge:
    """A judge that answers with the entries of `answers` in order, then by default 7 points."""

    def __init__(self):
        self.answers = []
        self._default = lambda request: verdict()

    def answer_all(self, answer):
        """Answers all requests by a function of the request."""
        self._default = answer

    def answer(self, request):
        """Returns the next answer; a function gets the request."""
        found = self.answers.pop(0) if self.answers else self._default
        return found(request) if callable(found) else found

    def bodies(self):
        """Returns the bodies of all requests so far."""
        return [request.json() for request in self.server.requests]


@contextlib.contextmanager
def judging():
    """Runs a fake judge."""
    fake = FakeJudge()
    with serving(fake.answer) as fake.server:
        yield fake


def make_judge(fake, folder, *, model="grader", rubric="Be brief.", key="", attempts=3, workers=2):
    """Returns a judge that asks the fake one."""
    endpoint = ChatEndpoint(
        fake.server.url,
        key=key,
        key_variable="JUDGE_KEY",
        connect_timeout_s=PATIENCE_S,
        timeout_s=PATIENCE_S,
        connections=workers,
    )
    return Judge(
        endpoint=endpoint,
        rubric=Rubric(model, rubric, 10.0),
        cache=VerdictCache(folder),
        attempts=attempts,
        workers=workers,
        token_prices=(1e-6, 2e-6),
    )


def episode(text="go left", outcome=Outcome.FAILURE, **changes):
    """Returns an episode of one turn, whose last observation ended it."""
    messages = ({"role": "user", "content": "start"}, {"role": "assistant", "content": text})
    turns = [turn(1, 2, text=text, observation="a wall")]
    return trajectory("pa", turns, outcome=outcome, messages=messages, **changes)


def never():
    """Returns False, as a run that does not stop."""
    return False


class Played(EpisodeCollector):
    """Collector whose episodes are given; it is its own scheduler."""

    def __init__(self, *trajectories):
        object.__setattr__(self, "trajectories", list(trajectories))

    def scheduler(self, *options):
        """Returns the collector itself."""
        return self

    def add(self, requests):
        """Ignores the requests."""

    def run(self, **options):
        """Returns empty statistics."""
        return CollectStatistics(collections.Counter())

    def take(self, indices):
        """Returns the given episodes."""
        return self.trajectories


def collect(judge, *trajectories, is_part=False, should_stop=never):
    """Returns given episodes with the scores of a judge, as a collector does."""
    return Played(*trajectories).collect(
        [],
        replacement_stride=1,
        on_progress=lambda *_: None,
        should_stop=should_stop,
        score=judge.score_rollout,
        is_part=is_part,
    )
