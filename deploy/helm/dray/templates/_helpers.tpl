{{/* The labels of a component: dict "root" $ "name" "dray-webhook". */}}
{{- define "dray.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: dray
{{- end }}

{{- define "dray.labels" -}}
{{ include "dray.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "dray-%s" .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The image of a service of dray: dict "root" $ "service" "webhook". */}}
{{- define "dray.image" -}}
{{- with .root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
dray-{{ .service }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* A file of the chart with this installation's namespace. */}}
{{- define "dray.file" -}}
{{- .root.Files.Get .file | replace "dray-system" .root.Release.Namespace -}}
{{- end }}

{{/* Whether this rendering reads the cluster, as `helm template` does not: "true" or empty. */}}
{{- define "dray.readsCluster" -}}
{{- if lookup "v1" "Namespace" "" "kube-system" }}true{{ end -}}
{{- end }}

{{/* Whether cert-manager issues the certificates: "true" or empty. */}}
{{- define "dray.certManager" -}}
{{- $source := .Values.certificates.source -}}
{{- if eq $source "cert-manager" -}}true
{{- else if and (eq $source "auto") (.Capabilities.APIVersions.Has "cert-manager.io/v1") -}}
{{- $made := lookup "v1" "Secret" .Release.Namespace "dray-webhook-tls" -}}
{{- $labels := dig "metadata" "labels" dict $made -}}
{{- if ne (get $labels "app.kubernetes.io/managed-by") "dray-chart" }}true{{ end -}}
{{- end -}}
{{- end }}

{{/* The number of bytes of a quantity such as 8Gi. */}}
{{- define "dray.bytes" -}}
{{- $unit := get (dict "Ki" 1 "Mi" 1024 "Gi" 1048576 "Ti" 1073741824) (regexFind "[A-Z]i$" .) -}}
{{- mul (regexFind "^[0-9]+" . | int64) $unit 1024 -}}
{{- end }}

{{/* Whether NATS' store is a volume: "true" or empty. The claims of a StatefulSet can't be changed: an
upgrade keeps what the installation chose. */}}
{{- define "dray.natsPersistent" -}}
{{- $persistence := .Values.nats.persistence -}}
{{- $held := lookup "apps/v1" "StatefulSet" .Release.Namespace "dray-nats" -}}
{{- if ne ($persistence.enabled | toString) "auto" }}{{ if $persistence.enabled }}true{{ end }}
{{- else if $held }}{{ if hasKey $held.spec "volumeClaimTemplates" }}true{{ end }}
{{- else if or $persistence.storageClassName (not (include "dray.readsCluster" .)) }}true
{{- else -}}
{{- range lookup "storage.k8s.io/v1" "StorageClass" "" "" | dig "items" list -}}
{{- if eq (dig "metadata" "annotations" "storageclass.kubernetes.io/is-default-class" "" .) "true" }}true{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "dray.natsUrl" -}}
{{- if .Values.nats.enabled -}}
{{ ternary "tls" "nats" .Values.nats.tls }}://dray-nats.{{ .Release.Namespace }}.svc:4222
{{- else -}}
{{ required "nats.external.url: where is NATS? Or set nats.enabled" .Values.nats.external.url }}
{{- end -}}
{{- end }}

{{- define "dray.natsSecret" -}}
{{- if .Values.nats.enabled -}}dray-nats
{{- else -}}
{{ required "nats.external.credentialsSecret: the Secret with the passwords of dray's users" .Values.nats.external.credentialsSecret }}
{{- end -}}
{{- end }}

{{/* The Secret with the authorities of NATS' certificates, or empty. */}}
{{- define "dray.natsAuthorities" -}}
{{- if .Values.nats.enabled }}{{ if .Values.nats.tls }}dray-nats-tls{{ end }}
{{- else }}{{ .Values.nats.external.caSecret }}{{ end -}}
{{- end }}

{{/* Who allocates the devices of the default pool. */}}
{{- define "dray.defaultOwner" -}}
{{- $minor := regexFind "[0-9]+" .Capabilities.KubeVersion.Minor | int -}}
{{- .Values.defaultPool.owner | default (ternary "kube-scheduler" "dray" (lt $minor 36)) -}}
{{- end }}

{{/* Environment that all services have: dict "root" $ "user" "webhook" (empty: a node-agent). */}}
{{- define "dray.env" -}}
- name: DRAY_INSTANCE
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: DRAY_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- {name: DRAY_NATS__URL, value: {{ include "dray.natsUrl" .root | quote }}}
{{- if include "dray.natsAuthorities" .root }}
- {name: DRAY_NATS__CA_FILE, value: /etc/dray/nats/ca.crt}
{{- end }}
{{- with .user }}
- {name: DRAY_NATS__USER, value: {{ . | quote }}}
- name: DRAY_NATS__PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "dray.natsSecret" $.root }}, key: {{ . }}-password}}
{{- end }}
- {name: DRAY_HEALTH__HOST, value: 0.0.0.0}
- {name: DRAY_HEALTH__PORT, value: "8080"}
- {name: DRAY_LOG__LEVEL, value: {{ .root.Values.logLevel | quote }}}
{{- if .root.Values.record }}
- {name: DRAY_RECORD, value: "true"}
{{- end }}
{{- with .root.Values.tracing.endpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ . | quote }}}
{{- else }}
- {name: OTEL_TRACES_EXPORTER, value: none}
{{- end }}
{{- end }}

{{/* All of a container's environment: the define "dray.env.<component>" and extraEnv, whose names come
first, since the API server refuses a name twice: dict "root" $ "component" "webhook" "extra" <list>. */}}
{{- define "dray.environment" -}}
{{- $extra := .extra | default list -}}
{{- $names := list -}}
{{- range $extra }}{{ $names = append $names .name }}{{ end -}}
{{- $own := list -}}
{{- range include (printf "dray.env.%s" .component) .root | fromYamlArray -}}
{{- if not (has .name $names) }}{{ $own = append $own . }}{{ end -}}
{{- end -}}
{{- concat $own $extra | toYaml -}}
{{- end }}

{{- define "dray.natsMount" -}}
{{- if include "dray.natsAuthorities" . }}
- {name: nats-authorities, mountPath: /etc/dray/nats, readOnly: true}
{{- end }}
{{- end }}

{{- define "dray.natsVolume" -}}
{{- with include "dray.natsAuthorities" . }}
- name: nats-authorities
  secret: {secretName: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- end }}

{{/* Ports and probes: dict "ports" (dict "https" 8443), those besides the health page. */}}
{{- define "dray.probes" -}}
ports:
  - {name: health, containerPort: 8080}
  {{- range $name, $port := .ports }}
  - {name: {{ $name }}, containerPort: {{ $port }}}
  {{- end }}
livenessProbe:
  httpGet: {path: /healthz, port: health}
  initialDelaySeconds: 10
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
  timeoutSeconds: 5
{{- end }}

{{/* Of a container that needs no right at all. */}}
{{- define "dray.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Metadata and placement of a pod: dict "root" $ "name" "dray-webhook" "values" .Values.webhook. What
the chart selects pods by comes before the values. */}}
{{- define "dray.podLabels" -}}
{{- merge (include "dray.labels" . | fromYaml) (.values.podLabels | default dict) | toYaml -}}
{{- end }}

{{- define "dray.podMetadata" -}}
metadata:
  labels: {{ include "dray.podLabels" . | nindent 4 }}
  {{- with .values.podAnnotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "dray.placement" -}}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
nodeSelector: {{ merge (dict "kubernetes.io/os" "linux") (.values.nodeSelector | default dict) | toYaml | nindent 2 }}
{{- with .values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Replicas apart from each other where that is possible. */}}
{{- define "dray.spread" -}}
{{- $selector := dict "matchLabels" (include "dray.selector" . | fromYaml) -}}
affinity:
{{- if .values.affinity }} {{ toYaml .values.affinity | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector: {{ toYaml $selector | nindent 12 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {{ toYaml $selector | nindent 6 }}
{{- end }}

{{/* The end of a container: dict "values" .Values.webhook. */}}
{{- define "dray.container" -}}
{{- with .values.resources }}
resources: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .values.additionalArgs }}
args: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A budget that keeps all replicas but one: dict "root" $ "name" "dray-webhook" "replicas" 2. */}}
{{- define "dray.budget" -}}
{{- if and .root.Values.podDisruptionBudgets.enabled (gt (int .replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "dray.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{ include "dray.selector" . | nindent 6 }}
{{- end }}
{{- end }}
