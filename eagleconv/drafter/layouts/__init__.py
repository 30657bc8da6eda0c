"""Every layout, one module per producer. Order matters only for how sets of producers are shown."""

from eagleconv.drafter.layouts import (
    angelslim,
    automodel,
    engine_flat,
    modelopt,
    safeailab,
    specforge,
    speculators,
    torchspec,
)
from eagleconv.drafter.layouts.layout import Layout

CANONICAL = engine_flat.CANONICAL

LAYOUTS: tuple[Layout, ...] = (
    safeailab.SAFEAILAB,
    safeailab.TRUNCATED,
    specforge.SPECFORGE,
    specforge.PEAGLE,
    torchspec.NATIVE,
    torchspec.NATIVE_MLA,
    torchspec.VLLM,
    torchspec.VLLM_MLA,
    torchspec.VLLM_KIMI,
    speculators.EAGLE3,
    speculators.CONVERTED,
    speculators.PEAGLE,
    speculators.MODELOPT,
    modelopt.HF,
    modelopt.HF_MLA,
    modelopt.MEGATRON,
    modelopt.DEEP,
    automodel.AUTOMODEL,
    angelslim.ANGELSLIM,
    engine_flat.SGLANG_LEGACY,
    engine_flat.CANONICAL,
)
