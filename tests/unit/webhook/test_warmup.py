"""What is slow once happens before the first pod."""

from dray_webhook.service.warmup import warm_up


def test_every_path_of_an_admission_is_gone_to_its_end():
    generated, custom, warned = warm_up()

    for answer in (generated, custom, warned):
        assert answer.allowed, answer.message
        assert answer.patch
    assert custom.requested.understood["selector"] == "custom"
    assert "did you mean" in warned.warnings[0]
