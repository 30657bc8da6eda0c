"""A target that runs: its hidden states at any boundary, its logits, a cache that can be cropped."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from eagleconv.errors import ConversionError, MissingExtraError, SourceError

#: In place of a boundary: the last state after the final norm.
AFTER_NORM = -1
_NORMS = ("norm", "final_layernorm", "final_layer_norm", "ln_f", "norm_f", "final_norm")
#: Kinds of layers that keep a key for each token, which can be taken out again (transformers 5.24,
#: `configuration_utils.py`); the state of others cannot give up a rejected token.
_CROPPABLE = {"full_attention", "sliding_attention", "chunked_attention", "indexed_attention"}
#: Names of the list of decoder layers, over the families of transformers.
_LAYERS = ("layers", "h", "blocks", "block")


class TargetModel:
    """A causal language model of transformers, one sequence at a time."""

    def __init__(self, model: Any) -> None:
        """Take a model that is loaded, a vision-language one too.

        Raises:
            ConversionError: Its decoder layers are not found, or some are recurrent.
        """
        self.model = model.eval()
        self.stack, self.layers = _decoder_layers(model)
        text = model.config.get_text_config(decoder=True)
        others = set(getattr(text, "layer_types", None) or ()) - _CROPPABLE
        if others:
            raise ConversionError(
                f"{type(model).__name__} has layers of kind {', '.join(sorted(others))}, whose "
                "state cannot give up a rejected token",
                "measure this target in the engine that serves it",
            )
        self.device = model.get_input_embeddings().weight.device
        self.dtype = model.get_input_embeddings().weight.dtype
        self._cache: Any = None
        # transformers 5.24 calls `cache` what all versions before called `past_key_values`.
        named = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in named else "past_key_values"

    @property
    def num_layers(self) -> int:
        """Decoder layers N; boundaries run from 0 to N."""
        return len(self.layers)

    @property
    def embedding(self) -> Tensor:
        """The embedding, [V, H]."""
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight.detach()

    @property
    def lm_head(self) -> Tensor:
        """The head, [V, H]."""
        weight: Tensor = self.model.get_output_embeddings().weight
        return weight.detach()

    def start(self) -> None:
        """Begin a new sequence."""
        from transformers import DynamicCache

        # Without the config, layers with a window keep all rows too, and can be cropped; their
        # mask still hides what lies outside the window.
        self._cache = DynamicCache()

    def __len__(self) -> int:
        """Return the number of tokens in the cache."""
        return int(self._cache.get_seq_length()) if self._cache is not None else 0

    def crop(self, tokens: int) -> None:
        """Forget all tokens but the first ones."""
        surplus = len(self) - tokens
        if surplus:
            self._cache.crop(-surplus)

    @torch.no_grad()
    def forward(
        self, ids: Sequence[int], boundaries: Sequence[int] = (), last: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Append tokens to the sequence.

        Args:
            ids: T token ids.
            boundaries: Which states to return, as numbers of decoder layers already run: 0 is what
                the first layer takes in, N what the last one gives, before the final norm;
                `AFTER_NORM` is that after it.
            last: Return the logits of the last token alone.

        Returns:
            Logits [T or 1, V], and states [T, len(boundaries) H] side by side.

        Raises:
            ConversionError: A boundary is outside the model.
        """
        wrong = [b for b in boundaries if not (0 <= b <= self.num_layers or b == AFTER_NORM)]
        if wrong:
            raise ConversionError(
                f"boundary {wrong[0]} is outside a target of {self.num_layers} layers",
                "check the layer ids: `eagleconv inspect --target`",
            )
        inputs = torch.tensor([list(ids)], device=self.device)
        with _tapped(self.stack, self.layers, sorted(set(boundaries))) as found:
            out = self.model(
                input_ids=inputs,
                use_cache=True,
                logits_to_keep=1 if last else 0,
                **{self._cache_name: self._cache},
            )
        states = [found[b].to(self.device) for b in boundaries]
        side_by_side = torch.cat(states, dim=-1) if states else torch.empty(len(ids), 0)
        return out.logits[0], side_by_side


def load_target(
    path: str, dtype: torch.dtype, device: str, device_map: str | None = None
) -> TargetModel:
    """Load a target by transformers.

    Args:
        path: A directory or Hub id.
        dtype: What to compute in.
        device: `cpu`, `cuda`, `cuda:1`, ...
        device_map: As transformers takes it (`auto` splits a large model); wins over `device`.

    Raises:
        SourceError: transformers cannot load it.
        MissingExtraError: transformers is not installed.
    """
    try:
        from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "running a target needs transformers", "pip install 'eagleconv[run]'"
        ) from error
    options: dict[str, Any] = {"dtype": dtype}
    if device_map is not None:
        options["device_map"] = device_map
    model: Any
    try:
        try:
            model = AutoModelForCausalLM.from_pretrained(path, **options)
        except ValueError:
            # A wrapper of a vision model, which that class does not know.
            model = AutoModelForImageTextToText.from_pretrained(path, **options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise SourceError(
            f"target {path} cannot be loaded: {str(error).splitlines()[0]}",
            "give a directory or Hub id that transformers loads",
        ) from error
    if device_map is None:
        model = model.to(device)
    return TargetModel(model)


def _decoder_layers(model: Any) -> tuple[Any, Any]:
    """Return the language model inside, and the list of its decoder layers."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    for module in (
        decoder,
        getattr(decoder, "language_model", None),
        getattr(decoder, "model", None),
    ):
        for name in _LAYERS:
            layers = getattr(module, name, None)
            if isinstance(layers, torch.nn.ModuleList) and len(layers):
                return module, layers
    raise ConversionError(
        f"the decoder layers of {type(model).__name__} are not found",
        "report the model: its family is not known here",
    )


def _final_norm(stack: Any) -> Any:
    """Return the norm after the last layer."""
    for name in _NORMS:
        if isinstance(getattr(stack, name, None), torch.nn.Module):
            return getattr(stack, name)
    raise ConversionError(
        f"the final norm of {type(stack).__name__} is not found",
        "report the model: its family is not known here",
    )


@contextmanager
def _tapped(stack: Any, layers: Any, boundaries: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """Collect hidden states [T, H] at boundaries while the model runs."""
    found: dict[int, Tensor] = {}

    def keep(boundary: int, value: Any) -> None:
        state = value[0] if isinstance(value, tuple) else value
        found[boundary] = state[0]

    with ExitStack() as hooks:
        for boundary in boundaries:
            if 0 <= boundary < len(layers):

                def before(_: Any, args: Any, kwargs: Any, b: int = boundary) -> None:
                    keep(b, args[0] if args else kwargs["hidden_states"])

                hook = layers[boundary].register_forward_pre_hook(before, with_kwargs=True)
            else:

                def after(_: Any, __: Any, output: Any, b: int = boundary) -> None:
                    keep(b, output)

                source = layers[-1] if boundary != AFTER_NORM else _final_norm(stack)
                hook = source.register_forward_hook(after)
            hooks.callback(hook.remove)
        yield found
