"""Resolution of the flag `--model`, and loading of the parameters of the named model."""

import dataclasses
import pathlib
import re
from collections.abc import Sequence
from typing import Any, Literal

import huggingface_hub
import huggingface_hub.errors
import jax

from agentgym_jax.checks import limits
from agentgym_jax.mesh.sharding import Layout
from agentgym_jax.models import peft_files
from agentgym_jax.models.config import PRESETS, DecoderConfig, from_hf_config
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.weights import TOKENIZER_FILES, check_tensors, load_hf
from agentgym_jax.runs import bucket
from agentgym_jax.text.tokenizer import Tokenizer, load_tokenizer, read_end_ids

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES = ("config.json", "*.safetensors", "*.safetensors.index.json", *TOKENIZER_FILES)


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """A model that was found but not yet loaded.

    Attributes:
      model: Name given by the user: a path, URL of a run folder in a bucket, preset or hub id.
      kind: `hf_dir` (Hugging Face directory), `peft_dir` (adapters in PEFT's format), `workdir` (run
        folder) or `preset` (random weights).
      path: Hugging Face directory or run folder; None for a preset. Of a run in a bucket, it is a
        local copy without trajectories and checkpoints.
      config: Shape of the model's decoder.
      base: Model of a `peft_dir` to which the adapters belong; None for other kinds.
    """

    model: str
    kind: Literal["hf_dir", "peft_dir", "preset", "workdir"]
    path: pathlib.Path | None
    config: DecoderConfig
    base: "ModelSource | None" = None

    @property
    def folder(self) -> pathlib.Path:
        """Returns the path of a model that is no preset."""
        assert self.path is not None, f"{self.model} is a preset"
        return self.path

    @property
    def tokenizer_path(self) -> pathlib.Path | None:
        """Returns the path of the tokenizer; None for a preset, which has no tokenizer."""
        if self.path is None:
            return None
        if self.base is not None and not (self.path / "tokenizer_config.json").exists():
            return self.base.tokenizer_path
        return self.path / "tokenizer" if self.kind == "workdir" else self.path

    @property
    def checkpoints(self) -> bucket.Folder:
        """Returns the folder `checkpoints/` of a run folder, local or in a bucket."""
        is_url = bucket.is_url(self.model)
        return (bucket.to_folder(self.model) if is_url else self.folder) / "checkpoints"


def resolve(model: str) -> ModelSource:
    """Finds a model by its name and checks its files, but loads no weights.

    Args:
      model: Hugging Face directory, directory of PEFT adapters, run folder (also in a bucket),
        preset such as `qwen2.5-0.5b` with random weights, or hub id of a model to download. A path
        has precedence.

    Raises:
      ValueError: `model` is none of these, or the model is not supported.
      FileNotFoundError: A file of the model is missing, or the hub cannot be reached.
    """
    source = find(model)
    check_weights(source)
    return source


def find(model: str, adapted_by: Sequence[pathlib.Path] = ()) -> ModelSource:
    """Finds a model and reads its configuration; unlike `resolve`, it does not check the weights.

    `adapted_by` are the directories of adapters whose base the model is.
    """
    if bucket.is_url(model):
        path = bucket.local_copy(model, with_trajectories=False)
        return ModelSource(model, "workdir", path, read_hf_config(path / "model"))
    path = pathlib.Path(model).expanduser()
    if path.is_file():
        raise ValueError(
            f"the model {model} is a file; expected a directory with config.json and safetensors. A "
            ".gguf file becomes one with transformers: AutoModelForCausalLM.from_pretrained("
            "directory, gguf_file=name).save_pretrained(new_directory), and AutoTokenizer alike"
        )
    if (path / "evaluation.json").exists():
        raise ValueError(
            f"{model} is an evaluation, which has no weights: name the evaluated model"
        )
    if (path / "checkpoints").is_dir():
        return ModelSource(model, "workdir", path, read_hf_config(path / "model"))
    if peft_files.is_peft(path):
        name = peft_files.read_config(path).get("base_model_name_or_path")
        if not name:
            raise ValueError(f"{path}: {peft_files.CONFIG_FILE} names no base_model_name_or_path")
        shown = limits.shorten(name)
        chain = (*adapted_by, path.resolve())
        if len(set(chain)) < len(chain):
            raise ValueError(
                f"{path}: base_model_name_or_path={shown} leads back to these adapters"
            )
        try:
            base = find(name, chain)
        except (FileNotFoundError, ValueError) as error:
            raise type(error)(
                f"{path / peft_files.CONFIG_FILE}: base_model_name_or_path={shown}: {error}"
            ) from error
        if base.config.hybrid is not None:
            raise ValueError(
                f"{path} adapts {shown}, a Qwen3.5; adapters of this family are not supported, so "
                "merge them with PEFT and pass the merged directory"
            )
        return ModelSource(model, "peft_dir", path, base.config, base)
    if not path.is_dir():
        if model in PRESETS:
            return ModelSource(model, "preset", None, PRESETS[model])
        if not _HUB_ID.fullmatch(model):
            named = model if model.isprintable() else limits.shorten(model)
            raise ValueError(
                f"the model {named} is no existing path, no preset ({', '.join(PRESETS)}) and no hub "
                "id of the form organisation/name"
            )
        path = download(model)
    return ModelSource(model, "hf_dir", path, read_hf_config(path))


def read_hf_config(directory: pathlib.Path) -> DecoderConfig:
    """Returns the DecoderConfig of a directory with a Hugging Face `config.json`."""
    path = directory / "config.json"
    if not path.exists():
        raise FileNotFoundError(
            f"{directory} has no config.json. A model is a Hugging Face directory (config.json and "
            "safetensors) or a run folder with checkpoints/ and model/config.json."
        )
    return from_hf_config(limits.read_object(path), path)


def download(hub_id: str) -> pathlib.Path:
    """Returns the local copy of a model of the Hugging Face hub; downloads missing files."""
    try:
        directory = huggingface_hub.snapshot_download(hub_id, allow_patterns=list(_HUB_FILES))
        return pathlib.Path(directory)
    except (huggingface_hub.errors.HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise FileNotFoundError(
            f"the model {hub_id} is no local path, and its download from the hub failed "
            f"({type(error).__name__}: {reason}). Without a network, copy the model's directory "
            "here and pass its path."
        ) from error


def check_weights(source: ModelSource) -> None:
    """Raises the errors of `check_tensors` or `peft_files.load` for directories with weights."""
    if source.base is not None:
        check_weights(source.base)
        peft_files.load(source.folder, Policy(source.config))
    if source.kind == "hf_dir":
        check_tensors(source.folder, Policy(source.config))


def read_tokenizer(source: ModelSource) -> Tokenizer:
    """Loads the tokenizer of a model.

    Raises:
      ValueError: There is no tokenizer, it is invalid, or it has more ids than the embedding rows.
      FileNotFoundError: The folder of the tokenizer is missing.
    """
    path = source.tokenizer_path
    if path is None:
        raise ValueError(
            f"{source.model} is a preset and has no tokenizer: name a directory or a run folder; in a "
            "config, set tokenizer.source to a path, 'bytes' or 'train'"
        )
    tokenizer = load_tokenizer(path)
    if source.base is not None and source.base.tokenizer_path is not None:
        tokenizer = tokenizer.ending_with(read_end_ids(source.base.tokenizer_path))
    check_vocabulary(tokenizer, source.config)
    return tokenizer


def check_vocabulary(tokenizer: Tokenizer, config: DecoderConfig) -> None:
    """Raises ValueError if the tokenizer has ids that the embedding lacks."""
    largest = max(tokenizer.vocab_size - 1, *tokenizer.end_ids, 0)
    if largest >= config.vocab_size:
        raise ValueError(
            f"the tokenizer has ids up to {largest}, the model only {config.vocab_size} embeddings; "
            "they do not belong together"
        )


def load_params(
    source: ModelSource,
    policy: Policy,
    layout: Layout | None = None,
    *,
    dtype: str = "float32",
    seed: int = 0,
) -> dict[str, Any]:
    """Loads the weights of a model onto the devices; a preset has random weights from `seed`."""
    if source.config != policy.config:
        raise ValueError(
            f"{source.model} has {source.config}, but the policy was built for {policy.config}; "
            "build it from the source's config"
        )
    if source.kind in ("workdir", "peft_dir"):
        raise ValueError(
            f"{source.model} is no directory of whole weights: load it with "
            "agentgym_jax.learner.stored_weights"
        )
    if source.kind == "hf_dir":
        return load_hf(source.folder, policy, layout, dtype)
    params = policy.init_sharded(jax.random.key(seed), layout)
    return jax.tree.map(lambda x: x.astype(dtype), params)
