"""Replacements for the packages of the loggers, reduced to the functions that this project uses.

Each replacement stores the received (step, name, value) in `SENT`, by logger and run.
"""

import collections
import sys
import types

SENT = collections.defaultdict(list)


def install(monkeypatch):
    """Makes all replacements importable and deletes earlier records."""
    SENT.clear()
    for module in (tensorboardx(), wandb(), *mlflow(), trackio()):
        # `importlib.util.find_spec` requires this attribute
        module.__spec__ = types.SimpleNamespace(name=module.__name__)
        monkeypatch.setitem(sys.modules, module.__name__, module)


def _rows(kind, run, metrics, step):
    SENT[kind, run] += [(step, name, value) for name, value in metrics.items()]


def tensorboardx():
    class SummaryWriter:
        def __init__(self, logdir):
            self._logdir = logdir

        def add_scalar(self, name, value, step):
            _rows("tensorboard", self._logdir, {name: value}, step)

        def flush(self):
            pass

        def close(self):
            pass

    module = types.ModuleType("tensorboardX")
    module.SummaryWriter = SummaryWriter
    return module


def wandb():
    class Run:
        def __init__(self, run_id, **options):
            self._id, self.options = run_id, options

        def log(self, metrics, step):
            _rows("wandb", self._id, metrics, step)

        def finish(self):
            pass

    module = types.ModuleType("wandb")
    module.starts = []

    def init(*, id, **options):
        module.starts.append(options | {"id": id})
        return Run(id, **options)

    module.init = init
    module.Settings = lambda **settings: settings
    return module


def mlflow():
    entities = types.ModuleType("mlflow.entities")
    entities.Metric = collections.namedtuple("Metric", "key value timestamp step")
    entities.Param = collections.namedtuple("Param", "key value")

    class MlflowClient:
        uris = []
        params = []

        def __init__(self, tracking_uri):
            self.uris.append(tracking_uri)

        def get_experiment_by_name(self, name):
            return None

        def create_experiment(self, name):
            return "7"

        def create_run(self, experiment, run_name):
            return types.SimpleNamespace(info=types.SimpleNamespace(run_id=f"{experiment}-made"))

        def update_run(self, run_id, status):
            pass

        def log_batch(self, run_id, metrics=(), params=()):
            assert len(params) <= 100
            self.params.extend(params)
            names = {metric.key for metric in metrics}
            # each name is a file, so it cannot also be a folder
            assert not any(f"{a}/" in b for a in names for b in names)
            for metric in metrics:
                _rows("mlflow", run_id, {metric.key: metric.value}, metric.step)

        def set_terminated(self, run_id):
            pass

    tracking = types.ModuleType("mlflow.tracking")
    tracking.MlflowClient = MlflowClient
    top = types.ModuleType("mlflow")
    top.entities, top.tracking = entities, tracking
    return top, entities, tracking


def trackio():
    class Run:
        def __init__(self, name):
            self._name = name

        def log(self, metrics, step):
            _rows("trackio", self._name, metrics, step)

        def finish(self):
            pass

    module = types.ModuleType("trackio")
    module.init = lambda *, name, **options: Run(name)
    return module
