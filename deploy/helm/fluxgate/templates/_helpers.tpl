{{- define "fluxgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "fluxgate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 54 | trimSuffix "-" }}
{{- else if contains (include "fluxgate.name" .) .Release.Name }}
{{- .Release.Name | trunc 54 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "fluxgate.name" .) | trunc 54 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "fluxgate.selector" -}}
app.kubernetes.io/name: {{ include "fluxgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fluxgate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "fluxgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fluxgate.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "fluxgate.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "fluxgate.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{/* The open listeners and their ports, as JSON. */}}
{{- define "fluxgate.listeners" -}}
{{- $ports := dict "api" 8081 }}
{{- if .Values.gateway.enabled }}{{ $_ := set $ports "gateway" 8080 }}{{ end }}
{{- if .Values.grpc.enabled }}{{ $_ := set $ports "grpc" 8082 }}{{ end }}
{{- if .Values.resp.enabled }}{{ $_ := set $ports "resp" 8083 }}{{ end }}
{{- toJson $ports }}
{{- end }}

{{/* The name of the Secret with passwords and tokens; empty without one. */}}
{{- define "fluxgate.secret" -}}
{{- if .Values.secrets.existing }}
{{- .Values.secrets.existing }}
{{- else if .Values.secrets.create }}
{{- include "fluxgate.fullname" . }}
{{- end }}
{{- end }}

{{- define "fluxgate.config" -}}
{{- $listen := dict }}
{{- range $name, $port := include "fluxgate.listeners" . | fromJson }}
{{- $address := printf "0.0.0.0:%d" (int $port) }}
{{- if and $.Values.tls.secret (has $name $.Values.tls.listeners) }}
{{- $tls := dict "cert" "/run/secrets/tls/tls.crt" "key" "/run/secrets/tls/tls.key" }}
{{- $_ := set $listen $name (dict "address" $address "tls" $tls) }}
{{- else }}
{{- $_ := set $listen $name $address }}
{{- end }}
{{- end }}
{{- $shutdown := dict "delay" (printf "%ds" (int .Values.shutdown.delay)) "grace" (printf "%ds" (int .Values.shutdown.grace)) }}
{{- $config := dict "listen" $listen "shutdown" $shutdown }}
{{- if eq .Values.rules.source "configMap" }}
{{- $_ := set $config "rules_from" (dict "dir" "/etc/fluxgate/rules.d") }}
{{- else if eq .Values.rules.source "stored" }}
{{- $_ := set $config "rules_from" (dict "redis" dict) }}
{{- end }}
{{- $entries := empty .Values.secrets.existing | ternary (keys .Values.secrets.create) .Values.secrets.entries }}
{{- if has "hash-secret" $entries }}
{{- $_ := set $config "keys" (dict "hash_secret_file" "/run/secrets/fluxgate/hash-secret") }}
{{- end }}
{{- if has "admin-tokens" $entries }}
{{- $_ := set $config "admin" (dict "tokens_file" "/run/secrets/fluxgate/admin-tokens") }}
{{- end }}
{{- if eq .Values.store.type "redis" }}
{{- $redis := dict "url" .Values.store.redis.url }}
{{- with .Values.store.redis.username }}{{ $_ := set $redis "username" . }}{{ end }}
{{- if has "redis-password" $entries }}
{{- $_ := set $redis "password_file" "/run/secrets/fluxgate/redis-password" }}
{{- end }}
{{- $redis = mergeOverwrite $redis (deepCopy .Values.store.redis.settings) }}
{{- $_ := set $config "store" (dict "redis" $redis) }}
{{- end }}
{{- mergeOverwrite $config (deepCopy .Values.config) | toYaml }}
{{- end }}

{{/* Combinations of values that cannot work. */}}
{{- define "fluxgate.check" -}}
{{- if eq .Values.store.type "memory" }}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) }}
{{- fail "several instances need `store.type: redis`: in memory, each would allow the whole limit" }}
{{- end }}
{{- if eq .Values.rules.source "stored" }}
{{- fail "`rules.source: stored` needs `store.type: redis`" }}
{{- end }}
{{- end }}
{{- if and .Values.gateway.enabled (not (dig "gateway" "routes" false .Values.config)) }}
{{- fail "`gateway.enabled` needs routes in `config.gateway.routes`" }}
{{- end }}
{{- if and .Values.tls.listeners (not .Values.tls.secret) }}
{{- fail "`tls.listeners` needs `tls.secret`" }}
{{- end }}
{{- if and .Values.secrets.existing .Values.secrets.create }}
{{- fail "`secrets.existing` and `secrets.create` exclude each other" }}
{{- end }}
{{- if and .Values.secrets.entries (not .Values.secrets.existing) }}
{{- fail "`secrets.entries` needs the name of a Secret in `secrets.existing`" }}
{{- end }}
{{- end }}
