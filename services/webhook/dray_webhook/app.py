"""The composition root: settings, adapters and loops."""

import asyncio

from dray.bus import jetstream
from dray.bus.backlog import Backlog
from dray.bus.payload import payload_problem
from dray.bus.topology import WEBHOOK
from dray.runtime import logs
from dray.runtime.health import HealthPages
from dray.runtime.lifetime import serve
from dray.telemetry import spans
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.registration import (
    MUTATE_CLAIMS,
    MUTATE_GROUPS,
    MUTATE_PODS,
    VALIDATE_CLAIMS,
    VALIDATE_GROUPS,
    VALIDATE_PODS,
    VALIDATE_POOLS,
    VALIDATE_WORKLOADS,
)
from dray_webhook.metrics import expose
from dray_webhook.service.certificates import ensure_certificates
from dray_webhook.service.derived_templates import DerivedTemplates
from dray_webhook.service.facts_cache import FactsCache
from dray_webhook.service.handler import AdmissionHandler
from dray_webhook.service.recorder import ReviewRecorder
from dray_webhook.service.server import AdmissionServer
from dray_webhook.service.tls import ServerTls
from dray_webhook.service.warmup import warm_up
from dray_webhook.settings import WebhookSettings

_SERVICE = "webhook"


async def run(settings: WebhookSettings) -> None:
    """Serve until SIGTERM."""
    logs.configure(
        _SERVICE, settings.instance, level=settings.log.level, format=settings.log.format
    )
    spans.configure(_SERVICE, settings.instance)
    warm_up()
    names = settings.webhook.sans
    tls = ServerTls(ensure_certificates(settings.webhook.certificate_dir, names), names)
    bus = await jetstream.connect(
        settings.nats.url,
        name=f"{_SERVICE}/{settings.instance}",
        role=WEBHOOK,
        user=settings.nats.user,
        password=settings.nats.password.get_secret_value(),
        ca_file=settings.nats.ca_file,
    )
    cache = FactsCache(bus)
    backlog = Backlog(bus, capacity=settings.webhook.event_queue, what="pod.requested")
    inputs = Backlog(bus, capacity=settings.webhook.event_queue, what="input.webhook")
    webhook = _webhook(settings, cache, backlog, inputs, DerivedTemplates(bus))
    health = HealthPages(settings.health.host, settings.health.port)
    server = _server(settings, webhook, tls, health)
    expose(health.registry, backlog, tls)
    health.check("cache", lambda: cache.problem)
    health.check("https", lambda: None if server.listening else "not listening yet")
    health.report("bus", lambda: bus.problem and f"{bus.problem}; answering from memory")
    health.report("bus-max-payload", lambda: payload_problem(bus.max_payload_bytes))
    health.report("certificate", lambda: tls.problem)
    await serve(
        health=health,
        close=[backlog.flush, inputs.flush, bus.close, _export_spans],
        facts=cache.run,
        events=backlog.run,
        inputs=inputs.run,
        https=server.run,
        certificates=tls.run,
    )


def _webhook(
    settings: WebhookSettings,
    cache: FactsCache,
    backlog: Backlog,
    inputs: Backlog,
    templates: DerivedTemplates,
) -> AdmissionHandler:
    installation = Installation(
        settings.namespace,
        settings.service_users(),
        settings.webhook.scheduler_names,
        settings.webhook.gpu_resources,
        settings.webhook.device_plugin,
    )
    return AdmissionHandler(
        cache,
        backlog,
        installation,
        source=f"/{_SERVICE}/{settings.instance}",
        sampling_ratio=settings.webhook.sampling_ratio,
        lookup_timeout_s=settings.webhook.lookup_timeout,
        recorder=ReviewRecorder(inputs, settings.instance, installation)
        if settings.record
        else None,
        templates=templates,
    )


def _server(
    settings: WebhookSettings,
    webhook: AdmissionHandler,
    tls: ServerTls,
    health: HealthPages,
) -> AdmissionServer:
    return AdmissionServer(
        {
            MUTATE_PODS: webhook.mutate_pod,
            VALIDATE_PODS: webhook.validate_pod,
            MUTATE_CLAIMS: webhook.mutate_claim,
            VALIDATE_CLAIMS: webhook.validate_claim,
            VALIDATE_POOLS: webhook.validate_pool,
            MUTATE_GROUPS: webhook.mutate_group,
            VALIDATE_GROUPS: webhook.validate_group,
            VALIDATE_WORKLOADS: webhook.validate_workload,
        },
        host=settings.webhook.host,
        port=settings.webhook.port,
        tls=tls.context,
        body_limit_bytes=settings.webhook.body_limit,
        registry=health.registry,
    )


async def _export_spans() -> None:
    await asyncio.to_thread(spans.shutdown)
