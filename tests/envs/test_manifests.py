"""Tasks of all environments: if a hash changes, new results cannot be compared with earlier ones."""

import pytest

from agentgym_envs.base.served import load_environment
from agentgym_envs.registry import ENVIRONMENTS

MANIFESTS = {
    "academia": "b6665a4b5655c21050078a92dadc6c0a127dbb4b18c37217b6c4c204d7519b40",
    "alfworld": "9976e4a1fb3736c62123fb604a65fcfd3590c8b51bd6aefef25f7608f168669d",
    "babyai": "f9403487ed7a0e8b88823caf817f60124785c14ce8b10e031929602c225f9dc0",
    "maze": "9baeaae40ea13c213d28032e7a527e94be2ec892e3a8ab3031a9edbb17696282",
    "movie": "907791bc79f341a73189dddcfaf0e982557b9ad1ea3a49e51655de3c31446931",
    "sciworld": "1ffe872ed651ec3f54d57fc3a956b7fa82347eef1f20d8a20aaca4234848bfb5",
    "sheet": "93cddd54adef4700f621901ed63414ee06646a7b758f5c6696c52247ffebbc42",
    "sqlgym": "087ccd4c72943aa800c1de731c2f6d32a1c1bbc45895710ae5ec5d23a2d1ac3b",
    "terminals": "88cc5fb3e03e9fd75cf247a6cb85211cc35dc12b5c16f1a6f31f0dc25685e923",
    "todo": "b1694b7c752596c1625d310dcc5f85809bc48a32233d0c2c0023a7a5e7df2060",
    "weather": "eb7e0f5f863b1e59286bd5302f5a61ec5feaa1d950b462535a31926b4a6b629c",
    "webshop": "fc940c81333e166a2e5de082a8c4ca3eff5ab9e454d35db2c80b230001043635",
    "wordle": "359aff9c2412d4e84470ccaaa4ec9a8c058fa705a8fd8112f5b0019fc0074657",
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_tasks_have_not_changed(name):
    assert load_environment(ENVIRONMENTS[name].module).spec.manifest_sha256 == MANIFESTS[name]
