"""PERSIA's two YAML files."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.compat.persia import _config, _service, env
from penstock.core.errors import ParameterError

EXAMPLE = Path(__file__).parents[2] / "examples" / "persia_dlrm"


ONE = {"a": {"dim": 4}}


def embedding(**content: object):
    return _config.embedding_config(content, "e.yml")


class TestEmbeddingConfig:
    def test_slots_as_persia_describes_them(self) -> None:
        config = embedding(
            slots_config={
                "user": {"dim": 8, "sqrt_scaling": True},
                "seen": {"dim": 4, "embedding_summation": False},
                "word": {"dim": 4, "hash_stack_config": {"hash_stack_rounds": 2, "embedding_size": 100}},
                "plain": {"dim": 4, "hash_stack_config": {"hash_stack_rounds": 0, "embedding_size": 0}},
            }
        )
        assert [(slot.name, slot.pooling, slot.length) for slot in config] == [
            ("user", "sqrt_n", None),
            ("seen", "raw", 10),
            ("word", "sum", None),
            ("plain", "sum", None),
        ]
        assert config["word"].hash_stack is not None and config["plain"].hash_stack is None
        assert config.prefix_bits == 8

    def test_named_groups_are_numbered_first(self) -> None:
        config = embedding(
            feature_index_prefix_bit=12,
            slots_config={name: {"dim": 4} for name in ("a", "b", "c", "d")},
            feature_groups={"g": ["d", "b"]},
        )
        assert config.sign("d", 5) == config.sign("b", 5) == (1 << 52) + 5
        assert config.sign("a", 5) == (2 << 52) + 5 and config.sign("c", 5) == (3 << 52) + 5

    def test_groups_and_features_may_be_numbers(self) -> None:
        config = embedding(slots_config={1: {"dim": 4}, 2: {"dim": 4}}, feature_groups={7: [2, 1]})
        assert config.sign("1", 5) == config.sign("2", 5)

    def test_an_id_is_taken_modulo_what_is_left_of_the_bits(self) -> None:
        config = embedding(slots_config={"a": {"dim": 4}})
        assert config.sign("a", 2**64 - 1) == (1 << 56) + (2**64 - 1) % (2**56 - 1)

    @pytest.mark.parametrize("name", ["slot_config", "slot_configs"])
    def test_older_names_are_read(self, name: str) -> None:
        assert embedding(**{name: {"a": {"dim": 4}}}).names == ["a"]

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            ({"slots_config": ONE, "feature_group": {}}, "no key 'feature_group'; did you mean 'feature_gr"),
            ({"slots_config": {"a": {"dim": 4, "sum": True}}}, "slots_config.a has no key 'sum'"),
            ({"slots_config": {"a": {"dim": 4, "hash_stack_config": {"n": 2}}}}, "hash_stack_config has no key 'n'"),
            ({"slots_config": {"a": {}}}, "slots_config.a needs dim"),
            ({"slots_config": {"a": {"dim": 0}}}, "slots_config.a.dim must be an int ≥ 1, got 0"),
            ({"slots_config": {"a": {"dim": "8"}}}, "got '8'"),
            ({"slots_config": {"a": 8}}, "slots_config.a must map keys to values, got 8"),
            ({"slots_config": {}}, "at least one feature"),
            ({}, "at least one feature"),
            ({"slots_config": {"a": {"dim": 4, "index_prefix": 3}}}, "index_prefix"),
            ({"slots_config": ONE, "feature_index_prefix_bit": 0}, "feature_index_prefix_bit"),
            ({"slots_config": ONE, "feature_groups": {"g": ["aa"]}}, "'aa', which has no slot; did you mean 'a'"),
            ({"slots_config": ONE, "feature_groups": {"g": ["a"], "h": ["a"]}}, "in the groups 'g' and 'h'"),
            ({"slots_config": {**ONE, "b": {"dim": 4}}, "feature_groups": {"a": ["b"]}}, "a group is called 'a'"),
            ({"slots_config": ONE, "feature_groups": ["a"]}, "must map a group"),
            ({"slots_config": ONE, "slot_config": {"b": {"dim": 4}}}, "slots_config twice"),
        ],
    )  # fmt: skip
    def test_what_is_wrong_is_named(self, content: dict, reason: str) -> None:
        with pytest.raises(ParameterError, match=reason) as caught:
            embedding(**content)
        assert "e.yml" in str(caught.value)

    def test_more_groups_than_bits_can_name_are_refused(self) -> None:
        slots = {f"s{i}": {"dim": 4} for i in range(256)}
        with pytest.raises(ParameterError, match="256 groups do not fit"):
            embedding(slots_config=slots)
        assert len(embedding(slots_config=slots, feature_index_prefix_bit=12).groups) == 256


class TestGlobalConfig:
    def test_what_matters_here(self) -> None:
        content = {
            "common_config": {
                "job_type": "Infer",
                "infer_config": {"servers": ["a:1"], "embedding_checkpoint": "ckpt"},
                "metrics_config": {"enable_metrics": False, "push_interval_sec": 10},
            },
            "embedding_parameter_server_config": {
                "capacity": 1000,
                "num_hashmap_internal_shards": 1,
                "enable_incremental_update": True,
                "incremental_dir": "inc",
                "incremental_buffer_size": 50,
            },
            "embedding_worker_config": {"forward_buffer_size": 7},
        }
        assert _config.global_config(content, "g.yml") == _config.GlobalConfig(1000, 7, "inc", 50, "ckpt")

    def test_older_sections_are_read(self) -> None:
        content = {"shard_server_config": {"capacity": 5}, "middleware_config": {"forward_buffer_size": 3}}
        assert _config.global_config(content, "g.yml") == _config.GlobalConfig(5, 3)

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            ({"common": {}}, "g.yml has no key 'common'; did you mean 'common_config'"),
            ({"embedding_parameter_server_config": {"capasity": 5}}, "did you mean 'capacity'"),
            ({"common_config": {"job_type": "Tran"}}, "common_config.job_type must be one of"),
            (
                {"common_config": {"metrics_config": {"enable": True}}},
                "metrics_config has no key 'enable'",
            ),
            ({"common_config": 3}, "common_config must map keys"),
        ],
    )
    def test_what_is_wrong_is_named(self, content: dict, reason: str) -> None:
        with pytest.raises(ParameterError, match=reason):
            _config.global_config(content, "g.yml")


class TestFiles:
    @pytest.fixture(autouse=True)
    def fresh(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv(_service.EMBEDDING_CONFIG, raising=False)
        _service.reset()
        yield
        _service.reset()

    def test_the_example_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(_service.EMBEDDING_CONFIG, str(EXAMPLE / "embedding_config.yml"))
        monkeypatch.setenv(_service.GLOBAL_CONFIG, str(EXAMPLE / "global_config.yml"))
        assert len(_service.service().slots().names) == 26
        assert _service.service().global_config().capacity == 1_000_000

    def test_a_file_beside_the_script_is_found(self, tmp_path: Path) -> None:
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "embedding_config.yml").write_text("slots_config: {a: {dim: 4}}")
        assert _service.service().slots().names == ["a"]

    def test_no_file_says_where_it_could_be(self) -> None:
        with pytest.raises(ParameterError, match="PERSIA_EMBEDDING_CONFIG"):
            _service.service().slots()

    @pytest.mark.parametrize(
        ("text", "reason"), [("[1, 2]", "got list"), ("a: [", "not valid YAML"), (None, "does not exist")]
    )
    def test_a_bad_file_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, reason: str
    ) -> None:
        if text is not None:
            (tmp_path / "e.yml").write_text(text)
        monkeypatch.setenv(_service.EMBEDDING_CONFIG, "e.yml")
        with pytest.raises(ParameterError, match=reason) as caught:
            _service.service().slots()
        assert "e.yml" in str(caught.value)


class TestEnvironment:
    @pytest.fixture(autouse=True)
    def fresh(self, monkeypatch: pytest.MonkeyPatch):
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "REPLICA_INDEX", "REPLICA_SIZE"):
            monkeypatch.delenv(name, raising=False)
        yield
        monkeypatch.undo()
        env.reload_env()

    def test_a_process_that_nobody_launched_is_the_only_one(self) -> None:
        env.reload_env()
        assert (env.get_rank(), env.get_world_size(), env.get_local_rank()) == (0, 1, 0)
        assert (env.get_replica_index(), env.get_replica_size()) == (0, 1)

    def test_a_trainer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}.items():
            monkeypatch.setenv(name, value)
        env.reload_env()
        assert (env.get_rank(), env.get_local_rank(), env.get_world_size(), env.get_replica_index()) == (3, 1, 4, None)

    @pytest.mark.parametrize("bad", ["x", "-1", ""])
    def test_a_number_that_is_none_is_named(self, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
        monkeypatch.setenv("REPLICA_INDEX", "0")
        monkeypatch.setenv("REPLICA_SIZE", bad)
        with pytest.raises(ParameterError, match="REPLICA_SIZE must be an int ≥ 1"):
            env.reload_env()

    @pytest.mark.parametrize("bad", ["8000", "host:", "host:x", "host:99999"])
    def test_an_address_that_is_none_is_named(self, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
        monkeypatch.setenv(_service.ADDRESS, bad)
        with pytest.raises(Exception, match=f"{_service.ADDRESS} must be host:port"):
            _service.addresses()
