"""The only door to OpenTelemetry: one trace per pod, decided at the webhook."""
