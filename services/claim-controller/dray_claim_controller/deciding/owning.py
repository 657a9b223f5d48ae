"""Questions about pools that change hands. Pure."""

from dray_claim_controller.deciding.seam import Question
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.owners.rules import LateSale, Stranded, late_sales, stranded


class WhoIsStranded(Question[Stranded], frozen=True, kw_only=True, tag="who-is-stranded"):
    """Pods that wait for dray in pools that kube-scheduler has by now."""

    def answer(self, picture: Picture) -> Stranded:
        return stranded(picture)

    def polled(self) -> str:
        return "who-is-stranded"


class CameLate(Question[tuple[LateSale, ...]], frozen=True, kw_only=True, tag="came-late"):
    """What kube-scheduler allocated on devices that dray had taken back, beyond what they have."""

    recalled: tuple[tuple[str, float], ...]
    """Nodes, and when their devices were taken back."""

    def answer(self, picture: Picture) -> tuple[LateSale, ...]:
        return tuple(
            sale
            for node, since_unix_s in self.recalled
            for sale in late_sales(picture, node, since_unix_s)
        )

    def polled(self) -> str:
        return "came-late"
