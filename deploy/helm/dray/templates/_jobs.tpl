{{/* Annotations of a hook: dict "events" "pre-install,pre-upgrade" "weight" "0". */}}
{{- define "dray.hook" -}}
helm.sh/hook: {{ .events }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- define "dray.env.job" -}}
- name: DRAY_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- end }}

{{/* The pod of a job: dict "root" $ "account" "dray-setup" "args" (list "chart" "prepare") "crds" true. */}}
{{- define "dray.jobPod" -}}
{{- $component := dict "root" .root "name" .account "values" .root.Values.jobs -}}
{{ include "dray.podMetadata" $component }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ .account }}
  automountServiceAccountToken: true
  {{- include "dray.placement" $component | nindent 2 }}
  {{- with .root.Values.jobs.affinity }}
  affinity: {{ toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: dray
      image: {{ include "dray.image" (dict "root" .root "service" "cli") }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args:
        {{- toYaml .args | nindent 8 }}
        {{- with .root.Values.jobs.additionalArgs }}{{ toYaml . | nindent 8 }}{{ end }}
      env: {{ include "dray.environment" (dict "root" .root "component" "job" "extra" .root.Values.jobs.extraEnv) | nindent 8 }}
      {{- include "dray.containerSecurity" . | nindent 6 }}
      {{- with .root.Values.jobs.resources }}
      resources: {{ toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- if .crds }}
        - {name: crds, mountPath: /crds, readOnly: true}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    {{- if .crds }}
    - name: crds
      configMap: {name: dray-crds}
    {{- end }}
{{- end }}

{{/* What `dray chart prepare` is called with. */}}
{{- define "dray.prepare" -}}
- chart
- prepare
- --nats-url={{ include "dray.natsUrl" . }}
{{- if not .Values.nats.enabled }}
- --external-nats={{ include "dray.natsSecret" . }}
{{- with .Values.nats.external.caSecret }}
- --external-authorities={{ . }}
{{- end }}
{{- end }}
{{- if include "dray.certManager" . }}
- --no-certificates
{{- end }}
{{- end }}

{{/* The account of a job and its rights: dict "root" $ "name" "dray-setup" "hook" <annotations> "rules" <cluster's> "own" <namespace's>. */}}
{{- define "dray.jobAccount" -}}
{{- $metadata := dict "name" .name "labels" (include "dray.labels" . | fromYaml) -}}
{{- if .hook }}{{ $_ := set $metadata "annotations" (fromYaml .hook) }}{{ end -}}
{{- $local := merge (dict "namespace" .root.Release.Namespace) $metadata -}}
apiVersion: v1
kind: ServiceAccount
metadata: {{ toYaml $local | nindent 2 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{ toYaml $metadata | nindent 2 }}
rules: {{ .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{ toYaml $metadata | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .name }}}
subjects:
  - {kind: ServiceAccount, name: {{ .name }}, namespace: {{ .root.Release.Namespace }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{ toYaml $local | nindent 2 }}
rules: {{ .own | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{ toYaml $local | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .name }}}
subjects:
  - {kind: ServiceAccount, name: {{ .name }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}

{{/* Rights to keep Secrets and the webhook's authorities. */}}
{{- define "dray.certificateRules" -}}
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
  resourceNames: [dray-webhook]
  verbs: [get, patch]
{{- end }}

{{- define "dray.secretRules" -}}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [dray-nats, dray-nats-tls, dray-webhook-tls, dray-operator]
  verbs: [get, patch]
{{- if not .Values.nats.enabled }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: {{ compact (list (include "dray.natsSecret" .) .Values.nats.external.caSecret) | toJson }}
  verbs: [get]
{{- end }}
# RBAC can't name what does not exist yet.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
{{- end }}
