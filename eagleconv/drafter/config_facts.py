"""Decide every fact of a drafter: tensors first, config keys as each possible producer meant them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from eagleconv.checkpoint.checkpoint import Checkpoint
from eagleconv.checkpoint.dtypes import CONFIG_NAMES
from eagleconv.drafter import aux_layers, meanings, sizes, vocabulary
from eagleconv.drafter.declared import Declared, DerivedTensor
from eagleconv.drafter.evidence import Candidate, lookup, present
from eagleconv.drafter.facts import AuxLayers, Fact, Origin, Question, TargetConfig, Trap
from eagleconv.drafter.model_types import MODEL_TYPE_DEFAULTS
from eagleconv.drafter.model_types import SOURCE as DEFAULTS_SOURCE
from eagleconv.drafter.rope import base_of, read_rope
from eagleconv.errors import SourceError

_TOP_IDS = "eagle_aux_hidden_state_layer_ids"
_NESTED_IDS = "eagle_config.eagle_aux_hidden_state_layer_ids"


class Reader:
    """Reads one checkpoint. `facts()` is the one entry; the rest of it is one method per fact."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        found: Sequence[Candidate],
        tensors: Mapping[str, str],
        declared: Declared,
        target: TargetConfig | None,
    ) -> None:
        """Take what is known; nothing is read yet."""
        self.checkpoint = checkpoint
        self.layouts = [c.layout for c in found]
        self.tensors = tensors
        self.declared = declared
        self.target = target
        self.where = checkpoint.source
        self.shapes = {k: checkpoint.tensors[v].shape for k, v in tensors.items()}
        self.questions: list[Question] = []
        self.traps: list[Trap] = []
        self.dropped: dict[str, str] = {}
        self.derived: dict[str, DerivedTensor] = {}
        manifest = checkpoint.manifest
        self.ours = bool(manifest) and "CANONICAL" != None and bool(manifest)
        if self.ours:
            self.layouts = [x for x in self.layouts if x.name == "eagle-3.1"] or self.layouts

    def get(self, item: str) -> tuple[Any, str]:
        """Return the first value of a config item under any possible layout, and its key."""
        for layout in self.layouts:
            for path, name in (*layout.keys, *layout.read_also):
                if name == item:
                    value = lookup(self.checkpoint.config, path)
                    if value is not None:
                        return value, path
        return None, ""

    def default(self, item: str) -> Any:
        """Return what an absent key means for the config's `model_type`, or None."""
        model_type = self.get("layer_model_type")[0] or self.checkpoint.config.get("model_type")
        return MODEL_TYPE_DEFAULTS.get(str(model_type or "llama"), {}).get(item)

    def scalar(self, item: str, kind: type | tuple[type, ...], flag: str = "") -> Fact:
        """Read a config item; its `model_type` default where it is absent."""
        value, key = self.get(item)
        if value is not None:
            if isinstance(value, bool) != (kind is bool) or not isinstance(value, kind):
                raise SourceError(
                    f"{self.where}: config.json key {key} is {value!r}", "correct its type"
                )
            return Fact(value, "read", "config.json", (key,))
        value = self.default(item)
        if value is None:
            model_type = self.checkpoint.config.get("model_type")
            raise SourceError(
                f"{self.where}: config.json has no {item}, and model_type {model_type!r} has no "
                "known default",
                f"add {item} to the config with the value the weights were trained with",
            )
        return Fact(value, "default", f"absent; default of model_type in {DEFAULTS_SOURCE}")

    def facts(self) -> dict[str, Fact]:
        """Decide every fact.

        Raises:
            SourceError: A tensor is missing, has a wrong shape, or contradicts the config.
        """
        s, get, where = self.shapes, self.get, self.where
        out: dict[str, Fact] = {}
        out["block"] = sizes.block_of(s)
        parallel = "mask_hidden" in s
        out["drafting"] = Fact(
            "parallel" if parallel else "chain",
            "read",
            "tensor mask_hidden" if parallel else "no tensor mask_hidden",
        )
        out["num_layers"] = Fact(sizes.count_layers(s), "read", "counted from the tensors")
        h = sizes.rows(s, "norm.weight", where)
        out["hidden_size"] = Fact(h, "read", "norm.weight")
        said, key = get("hidden_size")
        if said is not None and said != h:
            raise SourceError(
                f"{where}: config.json says {key} {said}, norm.weight has {h} values",
                "correct the config",
            )
        out["input_norm"] = self.input_norm()
        out |= self.aux(h)
        out["intermediate_size"] = Fact(
            sizes.rows(s, "layers.0.mlp.gate_proj.weight", where), "read", "mlp.gate_proj.weight"
        )
        if out["block"].value == "mla":
            out["mla"] = sizes.latent(s, get, where)
            out["num_attention_heads"] = self.scalar("num_attention_heads", int)
            kv = get("num_key_value_heads")[0]
            n = out["num_attention_heads"].value
            out["num_key_value_heads"] = Fact(kv or n, "read" if kv else "inferred", "MLA")
            m = out["mla"].value
            dim = get("head_dim")[0]
            out["head_dim"] = Fact(
                dim or m.qk_nope_head_dim + m.qk_rope_head_dim,
                "read" if dim else "inferred",
                "nope + rope",
            )
        else:
            out["mla"] = Fact(None, "read", "no latent projections")
            q, kv_heads, d = sizes.heads(s, get, h, where)
            out |= {"num_attention_heads": q, "num_key_value_heads": kv_heads, "head_dim": d}
        out |= self.vocabulary()
        out["feedback"] = self.feedback()
        out["residual"] = self.residual()
        for name, value in (
            ("fc_bias", "fc.bias"),
            ("attention_bias", "q_proj.bias"),
            ("output_bias", "o_proj.bias"),
        ):
            there = any(k.endswith(value) for k in s)
            out[name] = Fact(there, "read", f"{'a' if there else 'no'} tensor {value}")
        there = any(".mlp." in k and k.endswith(".bias") for k in s)
        out["mlp_bias"] = Fact(there, "read", "MLP bias tensors" if there else "no MLP bias")
        eps = self.scalar("rms_norm_eps", (float, int))
        out["rms_norm_eps"] = Fact(float(eps.value), eps.origin, eps.why, eps.keys)
        out["max_position_embeddings"] = self.scalar("max_position_embeddings", int)
        out["hidden_act"] = self.scalar("hidden_act", str)
        theta = self.default("rope_theta")
        out["rope"], asked = read_rope(
            get,
            [(x.producer, x.rope) for x in self.layouts],
            theta if isinstance(theta, int | float) else 10000.0,
            self.declared.rope_theta,
            self.declared.rope_scaling,
            self.declared.partial_rotary_factor,
        )
        self.questions += asked
        out["window"] = self.window(out["num_layers"].value)
        out["mask_token_id"] = self.mask_token(parallel)
        out["dtype"] = self.dtype()
        quantization, key = get("quantization_config")
        out["quantization"] = Fact(quantization, "read", "config.json" if key else "none")
        self.check_tensors(out)
        self.notes(out)
        return out

    def input_norm(self) -> Fact:
        """Tensors decide; a flag that contradicts them is reported."""
        per_aux = any(k.startswith("fc_norm.") for k in self.shapes)
        concat = "input_norm.weight" in self.shapes
        value = (
            "both" if per_aux and concat else "per_aux" if per_aux else "concat" if concat else ""
        )
        for item, there in (("fc_norm", per_aux), ("norm_before_fc", concat)):
            said, key = self.get(item)
            if said is True and not there:
                tensor = "fc_norm.*.weight" if item == "fc_norm" else "input_norm.weight"
                raise SourceError(
                    f"{self.where}: config.json says {key}: true, but there is no {tensor}",
                    "engines would run with untrained norms; get the tensors, or correct the key "
                    "if the weights were trained without",
                )
            if there and said is not True:
                self.traps.append(
                    Trap(
                        "ECC003",
                        "norm-flag-contradicts-tensors",
                        "warning",
                        f"{item} tensors are there, but the key is {said!r}: engines would drop "
                        "or refuse them",
                        "upgrade writes the key the tensors ask for",
                        item,
                    )
                )
        keys = tuple(k for i in ("fc_norm", "norm_before_fc") if (k := self.get(i)[1]))
        return Fact(value or "none", "read", f"{'its' if value else 'no norm'} tensors", keys)

    def aux(self, h: int) -> dict[str, Fact]:
        """Decide A, H and the taps."""
        fc = self.shapes.get("fc.weight")
        one_state = self.get("use_aux_hidden_state")[0] is False
        if fc is None and one_state:
            wide = self.get("target_hidden_size")[0] or h
            aux = AuxLayers(0, None, "last")
            why = "use_aux_hidden_state is false and there is no fc"
            return {
                "aux": Fact(aux, "read", why, ("eagle_config.use_aux_hidden_state",)),
                "target_hidden_size": Fact(wide, "inferred", "the width of the drafter"),
            }
        if fc is None:
            raise SourceError(f"{self.where}: tensor fc.weight is missing", "get the checkpoint")
        width, width_key = self.get("target_hidden_size")
        norms = [k for k in self.shapes if k.startswith("fc_norm.")]
        top, nested = self.ids(_TOP_IDS), self.ids(_NESTED_IDS)
        said, said_key = self.get("num_aux_hidden_states")
        fixed = {x.aux.count for x in self.layouts}
        count = (
            said
            or (len(top) if top is not None else 0)
            or (len(nested) if nested is not None else 0)
            or len(norms)
            or (fc[1] // width if width else 0)
            or (next(iter(fixed)) if len(fixed) == 1 and None not in fixed else 0)
            or (fc[1] // h if fc[1] % h == 0 else 3)
        )
        if width is None and self.target is not None:
            width, width_key = self.target.hidden_size, "target"
        states = width or (fc[1] // count if fc[1] % count == 0 else 0)
        if states * count != fc[1]:
            raise SourceError(
                f"{self.where}: fc.weight takes {fc[1]} values, expected {count} states of "
                f"{states or '?'} ({said_key or width_key or 'counted'})",
                "correct target_hidden_size, num_aux_hidden_states or the layer ids",
            )
        origin: Origin = "target" if width_key == "target" else "read" if width_key else "inferred"
        out = {
            "target_hidden_size": Fact(
                states,
                origin,
                f"fc.weight [{fc[0]}, {fc[1]}] takes {count} states",
                (width_key,) if width_key not in ("", "target") else (),
            )
        }
        layers = self.target.num_layers if self.target else self.get("target_num_layers")[0]
        if self.declared.aux_layers is not None:
            aux = aux_layers.parse_flag(self.declared.aux_layers, layers, count)
            fact: Fact | Question = Fact(aux, "user", "declared by --aux-layers")
        elif self.ours and (rule := self.recorded_rule(count, layers)) is not None:
            fact = rule
        else:
            fact = aux_layers.read_ids(
                top,
                nested,
                [self.numbering(x.keys, x.read_also) for x in self.layouts],
                [(x.name, x.aux) for x in self.layouts],
                layers,
                count,
                self.ours,
            )
        if isinstance(fact, Question):
            self.questions.append(fact)
            fact = Fact(AuxLayers(count, None, "default"), "open", fact.text)
        else:
            recorded = lookup(self.checkpoint.manifest or {}, "aux_layers.rule")
            if self.ours and fact.origin == "read" and recorded in ("default", "explicit"):
                fact = replace(fact, value=replace(fact.value, rule=recorded))
            aux_layers.check(fact.value, layers, count)
        return {"aux": fact, **out}

    def recorded_rule(self, count: int, layers: int | None) -> Fact | None:
        """Return the default rule our manifest recorded where no ids are written."""
        if self.ids(_TOP_IDS) is not None or self.ids(_NESTED_IDS) is not None:
            return None
        manifest = self.checkpoint.manifest or {}
        if lookup(manifest, "aux_layers.rule") != "default":
            return None
        taps = aux_layers.default_boundaries(layers) if layers else None
        return Fact(AuxLayers(count, taps, "default"), "read", "eagleconv.json: the default rule")

    def ids(self, path: str) -> list[int] | None:
        """Return layer ids at a path, or None.

        Raises:
            SourceError: They are no list of integers.
        """
        value = lookup(self.checkpoint.config, path)
        if value is None:
            return None
        if not isinstance(value, list) or not value or any(type(i) is not int for i in value):
            raise SourceError(
                f"{self.where}: config.json key {path} is {value!r}, expected a list of integers",
                "engines fall back to default taps silently; correct it",
            )
        return value

    @staticmethod
    def numbering(
        keys: tuple[tuple[str, str], ...], also: tuple[tuple[str, str], ...]
    ) -> tuple[str, str]:
        """Return the numbering of the (top, nested) id keys under one layout."""
        table = dict((*also, *keys))
        words = {"aux_boundaries": "boundary", "aux_outputs": "output"}
        return (
            words[table.get(_TOP_IDS, "aux_boundaries")],
            words[table.get(_NESTED_IDS, "aux_outputs")],
        )

    def vocabulary(self) -> dict[str, Fact]:
        """Decide V, D and the map, with its values checked."""
        s, c = self.shapes, self.checkpoint
        said_v, v_key = self.get("vocab_size")
        said_d, d_key = self.get("draft_vocab_size")
        sized = {
            k: s[n][0]
            for k, n in (("t2d", "t2d"), ("embed_tokens", "embed_tokens.weight"))
            if n in s
        }
        shown = ", ".join(f"{k} {n}" for k, n in sized.items())
        v = next(iter(sized.values()), said_v)
        if v is None and self.target is not None:
            v = self.target.vocab_size
        if v is None:
            raise SourceError(
                f"{self.where}: nothing says the target's vocabulary", "add vocab_size"
            )
        if len(set(sized.values())) > 1 or (said_v is not None and said_v != v):
            raise SourceError(
                f"{self.where}: vocabulary sizes disagree: config.json {said_v}, {shown}",
                "correct vocab_size, or get the tensors that belong to it",
            )
        head = s.get("lm_head.weight")
        d = head[0] if head else s["d2t"][0] if "d2t" in s else said_d or v
        if said_d is not None and said_d != d:
            raise SourceError(
                f"{self.where}: config.json says {d_key} {said_d}, lm_head or d2t has {d} rows",
                "correct draft_vocab_size",
            )
        full = d == v
        out = {
            "vocab_size": Fact(v, "read", shown or "config.json", (v_key,) if v_key else ()),
            "draft_vocab_size": Fact(
                d, "read", "lm_head rows" if head else "config.json", (d_key,) if d_key else ()
            ),
            "vocabulary": Fact("full" if full else "reduced", "read", f"D = {d}, V = {v}"),
            "own_head": Fact(head is not None, "read", "lm_head.weight" if head else "no lm_head"),
            "own_embedding": Fact(
                "embed_tokens.weight" in s,
                "read",
                "embed_tokens.weight" if "embed_tokens.weight" in s else "no embed_tokens",
            ),
        }
        if not full and head is None:
            raise SourceError(
                f"{self.where}: a draft vocabulary of {d} of {v} needs its own lm_head.weight",
                "engines would cut the target's head to the first rows, silently",
            )
        mask = c.read(self.tensors["t2d"]) if "t2d" in s else None
        if "d2t" in s:
            info = c.tensors[self.tensors["d2t"]]
            values = vocabulary.integers(c.read(self.tensors["d2t"]), info.dtype, "d2t")
            if full:
                self.drop_full_map(list(values), mask)
            else:
                self.check_map(values, mask, v, s["d2t"])
        elif full and mask is not None:
            self.drop_full_map([0] * d, mask)
        elif not full:
            self.derive_map(mask, d)
        return out

    def drop_full_map(self, values: list[int], mask: bytes | None) -> None:
        """Drop a map that says nothing, with the proof; vLLM refuses d2t at full vocabulary."""
        if any(values) or (mask is not None and not all(mask)):
            raise SourceError(
                f"{self.where}: the draft vocabulary is full, but d2t or t2d is no identity",
                "the map and lm_head do not belong together",
            )
        for name in ("d2t", "t2d"):
            if name in self.tensors:
                self.dropped[self.tensors[name]] = (
                    f"full vocabulary: {name} is the identity (every value checked)"
                )

    def check_map(self, values: Any, mask: bytes | None, v: int, shape: tuple[int, ...]) -> None:
        """Check d2t against t2d and V; absolute ids become offsets where that is proven."""
        problem = vocabulary.map_problem(values, mask, v)
        declared = self.declared.d2t_meaning
        absolute = declared == "absolute" or (
            declared is None and bool(problem) and vocabulary.are_absolute(values, mask, v)
        )
        if absolute:
            ids = list(values)
            if any(not 0 <= t < v for t in ids) or len(set(ids)) != len(ids):
                raise SourceError(f"{self.where}: d2t holds no distinct absolute ids below {v}")
            why = "declared" if declared else "they are exactly the ids t2d marks"
            self.derived["d2t"] = DerivedTensor(
                "I64", shape, vocabulary.offsets_of(ids), f"absolute ids made offsets ({why})"
            )
            return
        if problem:
            hint = "get the map that belongs to this lm_head"
            if mask is None and all(0 <= x < v for x in values) and len(set(values)) == len(values):
                hint = "if d2t holds absolute ids, say so with --d2t-meaning absolute"
            raise SourceError(f"{self.where}: d2t: {problem}", hint)
        if not any(values) and mask is None:
            self.traps.append(
                Trap(
                    "ECT002",
                    "d2t-all-zero",
                    "warning",
                    "d2t is all zeros: draft ids are the first target ids, which is also what an "
                    "uninitialised buffer looks like",
                    "check that the trainer kept the first ids",
                    "d2t",
                )
            )

    def derive_map(self, mask: bytes | None, d: int) -> None:
        """Rebuild d2t from t2d or from a trainer's side file; refuse to invent it."""
        side = self.checkpoint.side_data
        ids: list[int] | None = None
        if side.get("selected_token_ids") is not None:
            ids, why = list(side["selected_token_ids"]), "selected_token_ids of the side file"
        elif mask is not None:
            ids, why = [i for i, byte in enumerate(mask) if byte], "the ids t2d marks, ascending"
        if ids is None:
            raise SourceError(
                f"{self.where}: a reduced draft vocabulary without d2t",
                "engines would map draft ids to the first target ids, silently; get the map from "
                "the trainer (ModelOpt's Megatron export never writes it)",
            )
        if len(ids) != d:
            raise SourceError(f"{self.where}: {why}: {len(ids)} ids for {d} rows of lm_head")
        self.derived["d2t"] = DerivedTensor("I64", (d,), vocabulary.offsets_of(ids), why)

    def feedback(self) -> Fact:
        """See `meanings.feedback`."""
        if self.ours:
            value, key = self.get("norm_output")
            word = "post_norm" if value else "pre_norm"
            return Fact(word, "read", "norm_output, written by eagleconv", (key,) if key else ())
        value, key = self.get("norm_output")
        if value is None:
            value, key = self.get("norm_output_head")
        if value is not None and not isinstance(value, bool):
            raise SourceError(f"{self.where}: config.json key {key} is {value!r}, expected a bool")
        fact = meanings.feedback(
            self.layouts,
            value,
            key,
            self.declared.norm_output_meaning,
            lookup(self.checkpoint.config, "norm_before_residual") is not None,
        )
        if isinstance(fact, Question):
            self.questions.append(fact)
            return Fact(None, "open", fact.text, (key,))
        return fact

    def residual(self) -> Fact:
        """See `meanings.residual`."""
        value, key = self.get("norm_before_residual")
        if value is not None and not isinstance(value, bool):
            raise SourceError(f"{self.where}: config.json key {key} is {value!r}, expected a bool")
        fact = meanings.residual(
            [] if self.ours else self.layouts, value, key, self.declared.norm_before_residual
        )
        if isinstance(fact, Question):
            self.questions.append(fact)
            return Fact(None, "open", fact.text)
        return fact

    def window(self, layers: int) -> Fact:
        """Decide the attention window of each layer."""
        kinds, key = self.get("layer_types")
        size, size_key = self.get("sliding_window")
        declared = self.declared.attention_window
        keys = tuple(k for k in (key, size_key) if k)
        if declared is not None:
            return Fact((declared or None,) * layers, "user", "--attention-window", keys)
        asks = bool(size) and isinstance(kinds, list) and "sliding_attention" in kinds[:layers]
        if not asks:
            return Fact((None,) * layers, "read", "no window in the config", keys)
        if all(x.full_attention for x in self.layouts):
            producers = " / ".join(dict.fromkeys(x.producer for x in self.layouts))
            question = Question(
                "attention window",
                f"config.json asks for a window of {size}, which vLLM applies; {producers} train "
                "with full attention and may have copied the keys from the target.",
                f"--attention-window 0 (full) or --attention-window {size}",
            )
            self.questions.append(question)
            return Fact(None, "open", question.text, keys)
        window = tuple(size if kind == "sliding_attention" else None for kind in kinds[:layers])
        return Fact(window, "read", "layer_types and sliding_window", keys)

    def mask_token(self, parallel: bool) -> Fact:
        """P-EAGLE needs a mask token id, which SpecForge never writes."""
        value, key = self.get("mask_token_id")
        if value is None:
            value, key = self.checkpoint.side_data.get("peagle_mask_token_id"), "the side file"
        if self.declared.mask_token_id is not None:
            return Fact(self.declared.mask_token_id, "user", "declared by --mask-token-id")
        if not parallel or value is not None:
            return Fact(value, "read", key) if parallel else Fact(None, "read", "chain drafting")
        question = Question(
            "mask token",
            "P-EAGLE drafts with a mask token, and config.json has no mask_token_id, pard_token or "
            "ptd_token_id (SpecForge keeps it in its training state only).",
            "--mask-token-id ID",
        )
        self.questions.append(question)
        return Fact(None, "open", question.text)

    def dtype(self) -> Fact:
        """Name the dtype most bytes are stored in, and a config that says another."""
        sizes_: dict[str, int] = {}
        for name in self.tensors.values():
            info = self.checkpoint.tensors[name]
            sizes_[info.dtype] = sizes_.get(info.dtype, 0) + info.nbytes
        floats = {k: n for k, n in sizes_.items() if k in CONFIG_NAMES}
        stored = CONFIG_NAMES[max(floats, key=lambda k: floats[k])] if floats else "bfloat16"
        said, key = self.get("dtype")
        if said is not None and said != stored and not self.get("quantization_config")[0]:
            self.traps.append(
                Trap(
                    "ECC008",
                    "dtype-key-differs",
                    "warning",
                    f"config.json says {key} {said}, the tensors are {stored}",
                    "upgrade writes what the tensors are",
                    key,
                )
            )
        return Fact(stored, "read", "dtype of the tensors", (key,) if key else ())

    def check_tensors(self, facts: Mapping[str, Fact]) -> None:
        """Hold every tensor against the shape the facts imply, and miss none."""
        v = {k: f.value for k, f in facts.items()}
        packed = v["quantization"] is not None
        expected = sizes.expected_shapes(v, packed)
        for name, shape in expected.items():
            if name == "d2t" and "d2t" in self.derived:
                continue
            if name not in self.shapes:
                raise SourceError(
                    f"{self.where}: tensor {name} is missing",
                    "engines would leave it uninitialised or at 1.0, silently; get the whole file",
                )
            if self.shapes[name] != shape:
                raise SourceError(
                    f"{self.where}: tensor {self.tensors[name]} has shape "
                    f"{list(self.shapes[name])}, expected {list(shape)}",
                    "config and weights do not belong together",
                )
        for name in self.shapes:
            self.check_extra(name, expected, v)
        if not v["own_embedding"] and v["hidden_size"] != v["target_hidden_size"]:
            raise SourceError(
                f"{self.where}: the drafter is {v['hidden_size']} wide, its target "
                f"{v['target_hidden_size']}, so it cannot share the embedding, and has none",
                "get the checkpoint with embed_tokens.weight",
            )
        if self.target is not None:
            for fact, theirs in (
                ("target_hidden_size", self.target.hidden_size),
                ("vocab_size", self.target.vocab_size),
            ):
                if v[fact] != theirs:
                    raise SourceError(
                        f"{self.where}: the drafter was made for {fact} {v[fact]}, target "
                        f"{self.target.name} has {theirs}",
                        "give the target it was trained for",
                    )

    def check_extra(
        self, name: str, expected: Mapping[str, tuple[int, ...]], v: Mapping[str, Any]
    ) -> None:
        """Refuse a tensor that no part of this variant would use."""
        module, _, suffix = name.rpartition(".")
        if name in expected or self.tensors[name] in self.dropped:
            return
        if v["quantization"] is not None and module:
            return
        shape = self.shapes[name]
        if name == "t2d":
            wanted: tuple[int, ...] = (v["vocab_size"],)
        elif suffix == "bias" and f"{module}.weight" in expected:
            wanted = expected[f"{module}.weight"][:1]
        else:
            raise SourceError(
                f"{self.where}: tensor {self.tensors[name]} has no place in this variant "
                f"({v['block']} block, {v['num_layers']} layers, input norm {v['input_norm']})",
                "engines would drop it or refuse the file; get a checkpoint whose parts fit",
            )
        if shape != wanted:
            raise SourceError(
                f"{self.where}: tensor {self.tensors[name]} has shape {list(shape)}, expected "
                f"{list(wanted)}",
                "config and weights do not belong together",
            )

    def notes(self, facts: Mapping[str, Fact]) -> None:
        """Report the traps of the possible layouts."""
        for layout in self.layouts:
            sure = not layout.certain_key or present(self.checkpoint.config, layout.certain_key)
            for note in layout.notes if sure or len(self.layouts) == 1 else ():
                if all(facts[k].value == w for k, w in note.when.items()):
                    self.traps.append(
                        Trap(note.code, note.name, note.severity, note.message, note.hint)
                    )
        rope = facts["rope"].value
        kind = "default" if rope.scaling is None else str(rope.scaling.get("rope_type"))
        rare = [x for x in self.layouts if base_of(x.rope, kind) == "rarely 10000"]
        if rare and rope.theta != 10000.0 and self.declared.rope_theta is None and not self.ours:
            self.traps.append(
                Trap(
                    "ECC012",
                    "rope-base-by-version",
                    "warning",
                    f"rope base {rope.theta:g} is kept as written; {rare[0].producer}: "
                    f"{rare[0].rope.why}",
                    "if it was trained then, say so with --rope-theta 10000",
                    "rope_theta",
                )
            )
        tied, key = self.get("tie_word_embeddings")
        if tied is True and facts["own_head"].value:
            self.traps.append(
                Trap(
                    "ECC011",
                    "tied-with-own-head",
                    "warning",
                    "tie_word_embeddings is true beside an own lm_head; SGLang would use the "
                    "embedding as head",
                    "upgrade writes false",
                    key,
                )
            )
