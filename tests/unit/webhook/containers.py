"""A pod with containers of every kind, and an annotation for them."""

import json

P = "tensor-fusion.ai/"

SPEC = {
    "initContainers": [{"name": "init"}, {"name": "side", "restartPolicy": "Always"}],
    "containers": [{"name": "main"}, {"name": "proxy"}],
}


def gives(**containers):
    return {P + "container-gpus": json.dumps(containers)}
