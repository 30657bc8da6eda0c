"""The difference of two drafters in text."""

from eagleconv.conversion.difference import Difference


def as_lines(found: Difference) -> str:
    """Return facts first, then tensors."""
    lines = [f"fact    {name}: {a} | {b}" for name, (a, b) in found.facts.items()]
    lines += [f"tensor  {t.name}: {t.kind}: {t.detail}" for t in found.tensors]
    lines += [f"renamed {name}: {a} | {b}" for name, (a, b) in found.renamed.items()]
    lines.append(
        f"{found.equal} tensors equal byte for byte, {len(found.tensors)} differ, "
        f"{len(found.facts)} facts differ"
    )
    return "\n".join(lines) + "\n"
