"""Optional packages: the message that says how to install them."""

from __future__ import annotations

import json

import pytest

from reward.errors import MissingExtraError
from reward.optional import require


def test_an_installed_package_is_given_and_an_absent_one_names_purpose_package_and_extra() -> None:
    assert require("json", extra="report") is json
    with pytest.raises(MissingExtraError) as caught:
        require("package_that_is_absent.part", extra="judges", purpose="the judge client")
    assert "the judge client needs the package 'package_that_is_absent'" in str(caught.value)
    assert 'pip install "capreward[judges]"' in str(caught.value)
    assert isinstance(caught.value, ImportError)
