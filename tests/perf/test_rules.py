"""Every row of the rule table fires for some machine, formats, and says what was found."""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import replace

import pytest

from lucid_yolo.config.regions import OPTIONS, REGIONS
from lucid_yolo.config.schema import (
    CacheName,
    CachePlace,
    CompileName,
    DepthwiseName,
    HsvName,
    KernelsName,
    MuSGDConfig,
    PrecisionName,
    PrefetchName,
    SGDConfig,
)
from lucid_yolo.perf.flag import find_flags
from lucid_yolo.perf.live import LiveFacts, ModuleFacts
from lucid_yolo.perf.rules import DataFacts, Facts, Kind, Rule, Stage
from tests.perf.machines import CACHE_BYTES, CPU, CUDA, GIB, H200, MPS, OLD_CUDA, T4, make_config

DATA = DataFacts(num_train=205, num_val=87, num_larger=0, largest=(640, 480), cache_bytes=CACHE_BYTES, num_workers=0)
DEVICE_HSV = make_config(hsv=HsvName.DEVICE)
FUSED = make_config(kernels=KernelsName.FUSED)
TRITON = make_config(depthwise=DepthwiseName.TRITON)
AHEAD = make_config(prefetch=PrefetchName.EPOCH)
RULES = {rule.id: (flag, rule) for flag in find_flags() for rule in flag.rules}

# For every rule: facts that break it, facts that just do not, and what the sentence must tell.
CASES = {
    "cache.memory-needs-linux": (
        (make_config(cache=CacheName.DECODED), MPS),
        (make_config(cache=CacheName.DECODED, place=CachePlace.DISK), MPS),
        "which Linux has and Darwin has not; cache.place=disk runs everywhere",
    ),
    "cache.fits-memory": (
        (make_config(cache=CacheName.DECODED), replace(CPU, memory_available=15 * GIB // 4 - 8)),
        (make_config(cache=CacheName.DECODED), replace(CPU, memory_available=15 * GIB // 4 + 8)),
        "cache=decoded takes 3.00 GiB for 205 training pictures, and may take 80% of the available memory of 3.75 GiB; "
        "cache=prepared 1.00 GiB would be the alternative",
    ),
    "cache.fits-disk": (
        (make_config(cache=CacheName.PREPARED, place=CachePlace.DISK), replace(CPU, cache_disk_free=GIB)),
        (make_config(cache=CacheName.PREPARED, place=CachePlace.DISK), replace(CPU, cache_disk_free=2 * GIB)),
        "cache=prepared takes 1.00 GiB for 205 training pictures, and may take 80% of the 1.00 GiB that are free",
    ),
    **{
        f"capture.{region}.needs-cuda": (
            (make_config(capture=[region]), MPS),
            (make_config(capture=[region]), CUDA),
            f"capture={region} records CUDA graphs, this run computes on mps (no CUDA device, MPS is present)",
        )
        for region in REGIONS
    },
    "capture.heads.needs-segment": (
        (make_config(task="obb", capture=["heads"]), CPU),
        (make_config(task="segment", capture=["heads"]), CPU),
        "records the groups of predictions of task=segment, the task is obb, and capture=network records its head",
    ),
    **{
        f"capture.{region}.or-compile": (
            (make_config(task="segment", capture=["network", "heads", "loss"], compile=CompileName.STEP), CUDA),
            (make_config(capture=["gradient_norm", "orthogonalization", "updates"], compile=CompileName.STEP), CUDA),
            f"capture={region} and compile=step exclude each other",
        )
        for region in ("network", "heads", "loss")
    },
    "capture.gradient_norm.needs-torch": (
        (make_config(capture=["gradient_norm"]), replace(CUDA, torch_version="2.9.0rc5")),
        (make_config(capture=["gradient_norm"]), replace(CUDA, torch_version="2.9.0")),
        "needs a final release of torch, 2.9 or newer, found 2.9.0rc5",
    ),
    "capture.gradient_norm.needs-clipping": (
        (make_config(capture=["gradient_norm"], clip_norm=None), CUDA),
        (make_config(capture=["gradient_norm"], clip_norm=0.1), CUDA),
        "which trainer.clip_norm=None switches off",
    ),
    **{
        f"capture.{region}.needs-musgd": (
            (make_config(capture=[region], optimizer=SGDConfig(name="sgd", lr=0.01)), CPU),
            (make_config(capture=["network"], optimizer=SGDConfig(name="sgd", lr=0.01)), CPU),
            f"capture={region} records a part of MuSGD, the optimizer is sgd; set optimizer=musgd",
        )
        for region in ("orthogonalization", "updates")
    },
    **{
        f"capture.{region}.needs-muon-weight": (
            (make_config(capture=[region], optimizer=MuSGDConfig(name="musgd", lr=0.01, muon_weight=0.0)), CUDA),
            (make_config(capture=[region], optimizer=MuSGDConfig(name="musgd", lr=0.01, muon_weight=0.1)), CUDA),
            f"capture={region} has nothing to record with optimizer.muon_weight=0",
        )
        for region in ("orthogonalization", "updates")
    },
    "capture.auto.alone": (
        (make_config(capture=["loss", "auto"]), CPU),
        (make_config(capture=["auto"]), CPU),
        "capture=auto goes alone: it finds out which of the others to select; select it or loss",
    ),
    "capture.auto.needs-cuda": (
        (make_config(capture=["auto"]), CPU),
        (make_config(capture=["auto"]), CUDA),
        "this run computes on cpu (no CUDA device and no MPS): there is nothing to pick",
    ),
    "capture.step.alone": (
        (make_config(capture=["loss", "updates", "step"]), CPU),
        (make_config(capture=["step"]), CPU),
        "capture=step goes alone: it records everything that the others would; select it or loss+updates",
    ),
    "capture.step.no-accumulation": (
        (make_config(capture=["step"], accumulate=4), CPU),
        (make_config(capture=["loss"], accumulate=4), CPU),
        "trainer.accumulate=4 makes an update of several batches",
    ),
    "capture.step.needs-cuda": (
        (make_config(capture=["step"]), MPS),
        (make_config(capture=["step"]), CUDA),
        "capture=step records a CUDA graph, this run computes on mps (no CUDA device, MPS is present)",
    ),
    "capture.step.no-scaler": (
        (make_config(capture=["step"], precision=PrecisionName.FP16), CUDA),
        (make_config(capture=["step"], precision=PrecisionName.FP16), MPS),  # precision fell back, there is no scaler
        "no place for the loss scaler of precision=16-mixed",
    ),
    "compile.needs-cuda": (
        (make_config(compile=CompileName.STEP), CPU),
        (make_config(compile=CompileName.STEP), CUDA),
        "compile=step makes CUDA kernels, this run computes on cpu",
    ),
    "compile.needs-capability": (
        (
            make_config(compile=CompileName.STEP),
            replace(CUDA, cuda_devices=(replace(T4, name="P100", capability=(6, 0)),)),
        ),
        (
            make_config(compile=CompileName.STEP),
            replace(CUDA, cuda_devices=(replace(T4, name="V100", capability=(7, 0)),)),
        ),
        "needs a CUDA device of capability 7.0 or newer; P100 is older",
    ),
    "compile.needs-triton": (
        (make_config(compile=CompileName.STEP), replace(CUDA, triton=False)),
        (make_config(compile=CompileName.STEP), CUDA),
        "writes its kernels in Triton, which cannot be imported",
    ),
    "compile.needs-compiler": (
        (make_config(compile=CompileName.STEP), replace(CUDA, host_compiler=None)),
        (make_config(compile=CompileName.STEP), CUDA),
        "there is no C compiler",
    ),
    "depthwise.or-compile": (
        (make_config(depthwise=DepthwiseName.TRITON, compile=CompileName.STEP), CPU),
        (make_config(compile=CompileName.STEP), CPU),
        "depthwise=triton and compile=step exclude each other",
    ),
    "depthwise.needs-cuda": (
        (TRITON, MPS),
        (make_config(), MPS),
        "depthwise=triton needs a CUDA device, this run computes on mps (no CUDA device, MPS is present); depthwise=",
    ),
    "depthwise.needs-linux": (
        (TRITON, replace(CUDA, os="Windows")),
        (make_config(), replace(CUDA, os="Windows")),
        "depthwise=triton needs Triton on Linux, this is Windows; depthwise=stock does without it",
    ),
    "depthwise.needs-capability": (
        (TRITON, OLD_CUDA),
        (TRITON, replace(CUDA, cuda_devices=(replace(H200, capability=(8, 0)),))),
        "depthwise=triton needs a CUDA device of capability 8.0 or newer, Tesla T4 is older",
    ),
    "depthwise.needs-triton": (
        (TRITON, replace(CUDA, triton=False)),
        (TRITON, replace(CPU, triton=False)),  # that it needs CUDA is enough
        "depthwise=triton needs Triton, which cannot be imported here; install triton, or set depthwise=stock",
    ),
    "depthwise.needs-compiler": (
        (TRITON, replace(CUDA, host_compiler=None)),
        (TRITON, CUDA),
        "none of $CC, cc, gcc and clang was found; install one, or set depthwise=stock",
    ),
    "hsv.needs-cuda": (
        (make_config(hsv=HsvName.DEVICE_NATIVE), MPS),
        (make_config(hsv=HsvName.WORKER), MPS),
        "hsv=device_native needs a CUDA device, this run computes on mps",
    ),
    "hsv.fused.needs-linux": (
        (DEVICE_HSV, replace(CUDA, os="Windows")),
        (make_config(hsv=HsvName.DEVICE_NATIVE), replace(CUDA, os="Windows")),
        "needs Triton on Linux, this is Windows; hsv=device_native does without it",
    ),
    "hsv.fused.needs-capability": (
        (DEVICE_HSV, OLD_CUDA),
        (DEVICE_HSV, replace(CUDA, cuda_devices=(replace(H200, capability=(8, 0)),))),
        "capability 8.0 or newer, Tesla T4 is older",
    ),
    "hsv.fused.needs-triton": (
        (DEVICE_HSV, replace(CUDA, triton=False)),
        (DEVICE_HSV, replace(CPU, triton=False)),  # hsv itself fell back, once is enough
        "needs Triton, which cannot be imported here",
    ),
    "hsv.fused.needs-compiler": (
        (DEVICE_HSV, replace(CUDA, host_compiler=None)),
        (DEVICE_HSV, CUDA),
        "none of $CC, cc, gcc and clang was found",
    ),
    "kernels.or-compile": (
        (make_config(kernels=KernelsName.FUSED, compile=CompileName.STEP), CPU),
        (make_config(compile=CompileName.STEP), CPU),
        "kernels=fused and compile=step exclude each other",
    ),
    "kernels.needs-cuda": (
        (FUSED, MPS),
        (make_config(), MPS),
        "kernels=fused needs a CUDA device, this run computes on mps (no CUDA device, MPS is present); kernels=",
    ),
    "kernels.needs-linux": (
        (FUSED, replace(CUDA, os="Windows")),
        (make_config(), replace(CUDA, os="Windows")),
        "kernels=fused needs Triton on Linux, this is Windows; kernels=stock does without it",
    ),
    "kernels.needs-capability": (
        (FUSED, OLD_CUDA),
        (FUSED, replace(CUDA, cuda_devices=(replace(H200, capability=(8, 0)),))),
        "kernels=fused needs a CUDA device of capability 8.0 or newer, Tesla T4 is older",
    ),
    "kernels.needs-triton": (
        (FUSED, replace(CUDA, triton=False)),
        (FUSED, replace(CPU, triton=False)),  # that it needs CUDA is enough
        "kernels=fused needs Triton, which cannot be imported here; install triton, or set kernels=stock",
    ),
    "kernels.needs-compiler": (
        (FUSED, replace(CUDA, host_compiler=None)),
        (FUSED, CUDA),
        "none of $CC, cc, gcc and clang was found; install one, or set kernels=stock",
    ),
    "accelerator.present": (
        (make_config(accelerator="cuda"), MPS),
        (make_config(accelerator="mps"), MPS),
        "trainer.accelerator=cuda is not present on this machine, which has cpu and mps",
    ),
    "devices.one": (
        (make_config(devices=4), replace(CUDA, cuda_devices=(H200,) * 4)),
        (make_config(devices=1), replace(CUDA, cuda_devices=(H200,) * 4)),
        "trainer.devices=4: a run uses exactly one device",
    ),
    "precision.mixed-needs-cuda": (
        (make_config(precision=PrecisionName.FP16), MPS),
        (make_config(precision=PrecisionName.FP16), OLD_CUDA),
        "precision=16-mixed needs a CUDA device, this run computes on mps",
    ),
    "precision.bf16-needs-capability": (
        (make_config(precision=PrecisionName.BF16), OLD_CUDA),
        (make_config(precision=PrecisionName.BF16), CUDA),
        "Tesla T4 does not compute in bfloat16",
    ),
    "precision.bf16-needs-torch": (
        (make_config(precision=PrecisionName.BF16), replace(CUDA, torch_version="2.9.0a0+nv25.10")),
        (make_config(precision=PrecisionName.BF16), replace(CUDA, torch_version="2.9.0+cu128")),
        "found 2.9.0a0+nv25.10",
    ),
    "prefetch.needs-cuda": (
        (AHEAD, MPS),
        (AHEAD, CUDA),
        "prefetch=epoch needs a CUDA device, this run computes on mps",
    ),
    "prefetch.needs-workers": (
        (make_config(prefetch=PrefetchName.EPOCH, num_workers=0), CUDA),
        (make_config(prefetch=PrefetchName.EPOCH, num_workers=1), CUDA),
        "data.num_workers=0 has none",
    ),
    "prefetch.has-workers": (
        (AHEAD, replace(CUDA, cores=1)),
        (make_config(prefetch=PrefetchName.EPOCH, num_workers=0), replace(CUDA, cores=1)),  # that is the rule above
        "none was chosen for 1 cores",
    ),
    "prefetch.second-epoch": (
        (make_config(prefetch=PrefetchName.EPOCH, max_epochs=1), CUDA),
        (make_config(prefetch=PrefetchName.EPOCH, max_epochs=2), CUDA),
        "prepares the next epoch, and with trainer.max_epochs=1 there is none",
    ),
    "prefetch.whole-epochs": (
        (make_config(prefetch=PrefetchName.EPOCH, max_steps=50), CUDA),
        (AHEAD, CUDA),
        "trainer.max_steps=50 may end inside one",
    ),
}


# The same for what is found on the objects of a fit: the rule, what breaks it, and the names that the sentence tells.
LIVE_CASES = {
    **{
        f"capture.{region}.{name}": case
        for region in ("network", "heads")
        for name, case in {
            "own-forward": (LiveFacts(network=ModuleFacts(own_forward=("neck",))), "compiled on neck"),
            "hooks": (LiveFacts(network=ModuleFacts(hooked=("a", "b", "c", "d", "e"))), "on a, b, c and 2 more"),
            "frozen-part": (LiveFacts(network=ModuleFacts(frozen=("head",))), "of head is trainable"),
            "shared-parameters": (LiveFacts(network=ModuleFacts(shared=("a.weight",))), "and a.weight lie"),
            "parameters": (LiveFacts(network=ModuleFacts(misfits=("a (float16)",))), "found a (float16)"),
        }.items()
    },
    "capture.loss.stock-loss": (LiveFacts(loss_is_stock=False, loss_class="Mine"), "this one is of class Mine"),
    "capture.loss.own-forward": (LiveFacts(loss=ModuleFacts(own_forward=("itself",))), "compiled on itself"),
    "capture.loss.hooks": (LiveFacts(loss=ModuleFacts(hooked=("itself",))), "there are some on itself"),
    "capture.gradient_norm.stock-clipping": (LiveFacts(own_clipping=("Mine.clip_gradients",)), "Mine.clip_gradients"),
    "capture.gradient_norm.stock-precision": (LiveFacts(precision_clipping="Mine"), "precision plugin Mine clips"),
    "capture.gradient_norm.unscaled-gradients": (LiveFacts(unscales=True), "the optimizer MuSGD undoes the scaling"),
    **{
        f"capture.{region}.{name}": case
        for region in ("orthogonalization", "updates")
        for name, case in {
            "stock-optimizer": (LiveFacts(optimizer_is_stock=False, optimizer_class="Mine"), "is of class Mine"),
            "own-step": (LiveFacts(own_steps=("update",)), "replaced on the optimizer: update"),
            "optimizer-hooks": (LiveFacts(optimizer_hooks=("hooks of this optimizer",)), "hooks of this optimizer"),
            "optimizer-parameters": (LiveFacts(optimizer_misfits=("parameter 0 (float16)",)), "parameter 0 (float16)"),
            "groups-without-muon": (LiveFacts(groups_without_muon=("group 1",)), "it is 0 in group 1"),
        }.items()
    },
    **{
        f"capture.step.{name}": case
        for name, case in {
            "own-forward": (LiveFacts(loss=ModuleFacts(own_forward=("itself",))), "compiled on itself"),
            "hooks": (LiveFacts(network=ModuleFacts(hooked=("neck",))), "there are some on neck"),
            "stock-loss": (LiveFacts(loss_is_stock=False, loss_class="Mine"), "this one is of class Mine"),
            "stock-optimizer": (LiveFacts(optimizer_is_ours=False, optimizer_class="Mine"), "is of class Mine"),
            "own-step": (LiveFacts(own_steps=("update",)), "replaced on it: update"),
            "optimizer-hooks": (LiveFacts(optimizer_hooks=("hooks of this optimizer",)), "hooks of this optimizer"),
            "own-hooks": (LiveFacts(hooks_in_step=("Mine.on_after_backward",)), "update: Mine.on_after_backward;"),
            "optimizer-parameters": (LiveFacts(optimizer_misfits=("parameter 0 (float16)",)), "parameter 0 (float16)"),
        }.items()
    },
}
ALL = make_config(capture=OPTIONS)


class Untouchable:
    """Stands in for a machine that a rule must not look at."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"looked at the machine: {name}")


def unfired(rules: Iterable[Rule], cases: Iterable[Facts]) -> set[str]:
    """Ids of the rules that none of the cases breaks."""
    cases = list(cases)
    return {rule.id for rule in rules if not any(rule.applies(facts) for facts in cases)}


def facts_of(config, machine) -> Facts:
    return Facts(config=config, machine=machine, data=DATA)


def test_every_rule_has_a_case_and_every_case_a_rule():
    assert {*CASES, *LIVE_CASES} == RULES.keys()
    assert {id for id, (_, rule) in RULES.items() if rule.stage is Stage.SETUP} == LIVE_CASES.keys()


@pytest.mark.parametrize("rule_id", CASES)
def test_rule_fires_and_stays_quiet_on_the_nearest_good_facts(rule_id):
    broken, fine, sentence = CASES[rule_id]
    rule = RULES[rule_id][1]
    assert rule.applies(facts_of(*broken))
    assert not rule.applies(facts_of(*fine))
    assert sentence in rule.explain(facts_of(*broken))


@pytest.mark.parametrize("rule_id", LIVE_CASES)
def test_rule_of_stage_setup_fires_on_what_was_found_and_only_where_its_region_is_selected(rule_id):
    live, sentence = LIVE_CASES[rule_id]
    flag, rule = RULES[rule_id]
    broken = Facts(config=ALL, machine=CUDA, data=None, live=live)
    assert rule.applies(broken)
    assert rule.kind is Kind.FALLBACK
    assert sentence in rule.explain(broken)
    assert not rule.applies(replace(broken, live=LiveFacts()))
    region = flag.key.removeprefix("capture.")
    assert not rule.applies(replace(broken, config=make_config(capture=[name for name in OPTIONS if name != region])))


def test_heads_can_be_recorded_on_a_frozen_backbone():
    facts = Facts(config=ALL, machine=CUDA, data=None, live=LiveFacts(network=ModuleFacts(frozen=("backbone", "neck"))))
    assert not RULES["capture.heads.frozen-part"][1].applies(facts)
    assert RULES["capture.network.frozen-part"][1].applies(facts)


def test_no_rule_is_dead():
    rules = [rule for _, rule in RULES.values() if rule.stage is not Stage.SETUP]
    assert unfired(rules, [facts_of(*case[0]) for case in CASES.values()]) == set()


def test_a_planted_dead_rule_is_found():
    planted = Rule(id="planted.dead", stage=Stage.CONFIG, kind=Kind.REFUSE, applies=lambda facts: False, sentence="")
    rules = [rule for _, rule in RULES.values() if rule.stage is not Stage.SETUP]
    assert unfired([*rules, planted], [facts_of(*case[0]) for case in CASES.values()]) == {"planted.dead"}


def test_ids_are_unique_and_start_with_a_flag():
    ids = [rule.id for flag in find_flags() for rule in flag.rules]
    assert len(ids) == len(set(ids))
    assert all(rule.id.startswith(f"{flag.key}.") for flag, rule in RULES.values())


@pytest.mark.parametrize("rule_id", CASES)
def test_rule_of_stage_config_looks_at_no_machine(rule_id):
    rule = RULES[rule_id][1]
    config, _ = CASES[rule_id][0]
    facts = Facts(config=config, machine=Untouchable(), data=None)
    if rule.stage is Stage.CONFIG:
        assert rule.applies(facts)
    else:
        with pytest.raises(AssertionError):  # it looked at the machine, or missed the data
            rule.applies(facts)


def test_sentences_hold_known_fields_only():
    with pytest.raises(AttributeError):
        replace(RULES["devices.one"][1], sentence="{machine.colour}").explain(facts_of(make_config(), CPU))
    for _, rule in RULES.values():
        fields = [field for _, field, _, _ in string.Formatter().parse(rule.sentence) if field]
        own = rule.words(replace(facts_of(make_config(), CPU), live=LiveFacts()))
        assert all(field in own or field.split(".")[0] in ("config", "machine", "data") for field in fields)
