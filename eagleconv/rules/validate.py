"""Run the rules over one checkpoint."""

from collections.abc import Iterator, Sequence

from eagleconv.checkpoint.source import open_source
from eagleconv.drafter.declared import Declared
from eagleconv.drafter.facts import Question, Trap, variant_words
from eagleconv.drafter.read import Drafter, read_drafter
from eagleconv.engines.engine import Engine
from eagleconv.errors import EagleconvError, UsageError
from eagleconv.rules import RULES
from eagleconv.rules.engine import judgements, verdict_of
from eagleconv.rules.finding import SEVERITIES, Finding, Location, Severity, Skipped, Validated
from eagleconv.rules.rule import Hit, Rule
from eagleconv.rules.subject import Subject
from eagleconv.target.view import TargetView

#: Question -> the rule that reports it.
QUESTION_RULES = {
    "feedback": "ECC018",
    "residual": "ECC019",
    "aux layers": "ECC031",
    "rope theta": "ECR003",
    "rope scaling": "ECR003",
    "partial rotary factor": "ECR003",
    "attention window": "ECW001",
    "mask token": "ECV014",
}
#: What a rule needs -> why it did not run without.
_NEEDS = {
    "target": "no --target was given",
    "target weights": "no --target with weights was given",
    "engine": "no --engine was given",
    "deep": "it reads every tensor: give --deep",
    "context length": "no --context-length was given",
}


def validate(
    source: str,
    target: TargetView | None,
    engines: Sequence[tuple[Engine, str]],
    context_length: int | None,
    deep: bool,
    codes: Sequence[str] | None = None,
    declared: Declared | None = None,
) -> Validated:
    """Run rules over a checkpoint.

    Args:
        source: A directory, `org/name`, or `hf://org/name@revision`.
        target: From `target.view.open_target`, or None.
        engines: (engine, version) to judge for.
        context_length: The context that is planned, or None.
        deep: Read every tensor.
        codes: Rules to run; None for all.
        declared: What the weights were trained with, where the files leave it open.

    Returns:
        The result; where the source cannot be read or is no drafter, `unreadable` says why.
    """
    try:
        checkpoint = open_source(source, weights=deep)
    except UsageError:
        raise
    except EagleconvError as error:
        return Validated(source, unreadable=error.message, hint=error.hint)
    try:
        facts = target.facts if target else None
        drafter = read_drafter(checkpoint, declared, facts, collect=True)
        subject = Subject(drafter, tuple(engines), target, context_length, deep)
        return _result(subject, [r for r in RULES if codes is None or r.code in codes])
    except UsageError:
        raise
    except EagleconvError as error:
        return Validated(source, checkpoint.revision, unreadable=error.message, hint=error.hint)
    finally:
        checkpoint.close()


def _result(s: Subject, rules: Sequence[Rule]) -> Validated:
    findings: list[Finding] = []
    run: list[str] = []
    skipped: list[Skipped] = []
    for rule in rules:
        reason = _reason_to_skip(rule, s)
        hits = [] if reason else list(_hits(rule, s))
        if not hits and not reason:
            blind = [n for n in rule.unread if n in s.drafter.unread]
            if blind:
                reason = f"{blind[0]} could not be read: {s.drafter.unread[blind[0]]}"
        if reason:
            skipped.append(Skipped(rule.code, rule.name, reason))
            continue
        run.append(rule.code)
        findings += [_finding(rule, hit, s) for hit in hits]
    findings.sort(key=lambda f: (-SEVERITIES.index(f.severity), f.code))
    drafter = s.drafter
    return Validated(
        s.checkpoint.source,
        s.checkpoint.revision,
        () if s.fallback else drafter.layout_names,
        () if s.fallback else drafter.producers,
        _variant(drafter),
        tuple(findings),
        tuple(run),
        tuple(skipped),
        tuple(verdict_of(j, s) for j in judgements(s)),
    )


def _variant(drafter: Drafter) -> str:
    needed = ("block", "num_layers", "vocabulary", "input_norm", "window")
    if all(name in drafter.facts for name in needed):
        return variant_words(drafter.facts)
    return ""


def _reason_to_skip(rule: Rule, s: Subject) -> str:
    has = {
        "target": s.target is not None,
        "target weights": s.target is not None and s.target.weights is not None,
        "engine": bool(s.engines),
        "deep": s.deep,
        "context length": s.context_length is not None,
    }
    for need in rule.needs:
        if not has[need]:
            why = s.target.why if need == "target weights" and s.target else ""
            return why or _NEEDS[need]
    return ""


def _hits(rule: Rule, s: Subject) -> Iterator[Hit]:
    for trap in s.drafter.traps:
        if trap.code == rule.code:
            yield _of_trap(trap)
    for question in s.drafter.questions:
        if QUESTION_RULES[question.fact] == rule.code:
            yield _of_question(question, s)
    if rule.check is not None:
        yield from rule.check(s)


def _of_trap(trap: Trap) -> Hit:
    return Hit(trap.message, trap.hint, tensor=trap.tensor, key=trap.key)


def _of_question(question: Question, s: Subject) -> Hit:
    fact = {"aux layers": "aux", "attention window": "window", "mask token": "mask_token_id"}.get(
        question.fact, question.fact
    )
    found = s.drafter.facts.get("rope" if fact.startswith(("rope", "partial")) else fact)
    key = next((k for k in found.keys if k), "") if found is not None else ""
    # An engine that finds no ids taps its default; of a head not known to be trained with that,
    # vllm#50170 is what follows.
    unwritten = question.fact == "aux layers" and not s.ids_written()
    severity: Severity | None = "error" if unwritten and s.engines else None
    return Hit(question.text, f"answer with {question.flag} of upgrade", key=key, severity=severity)


def _finding(rule: Rule, hit: Hit, s: Subject) -> Finding:
    severity: Severity = hit.severity or rule.severity
    if hit.severity is None and s.engines:
        # The worst any engine asked for makes of it; its own severity where some engine has none.
        asked = [rule.engine_severity.get(e.name, rule.severity) for e, _ in s.engines]
        severity = max(asked, key=SEVERITIES.index)
    info = s.checkpoint.tensors.get(hit.tensor)
    file = hit.file or (info.file if info else "config.json" if hit.key else "")
    return Finding(
        rule.code,
        rule.name,
        severity,
        hit.message,
        Location(file, hit.tensor, hit.key),
        hit.hint or rule.fix,
        hit.engine,
    )
