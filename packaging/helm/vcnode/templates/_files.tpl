{{- /* SPDX-License-Identifier: Apache-2.0 */}}
{{- /* One shipped file: all its objects, with this release's namespace and labels.
       Called with (list ROOT FILE). */}}
{{- define "vcnode.file" }}
{{- $root := index . 0 }}
{{- range $text := splitList "\n---\n" ($root.Files.Get (index . 1) | required (printf "%s is missing" (index . 1))) }}
{{- $object := printf "%s\n" $text | replace "vcnode-system" $root.Release.Namespace | fromYaml }}
---
{{ include "vcnode.object" (list $root $object) }}
{{- end }}
{{- end }}

{{- define "vcnode.object" }}
{{- $root := index . 0 }}
{{- $object := index . 1 }}
{{- $labels := dict "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version) }}
{{- $_ := set $labels "app.kubernetes.io/managed-by" $root.Release.Service }}
{{- $_ := set $labels "app.kubernetes.io/instance" $root.Release.Name }}
{{- $_ := set $labels "app.kubernetes.io/name" $root.Chart.Name }}
{{- $_ := set $object.metadata "labels" (merge (default dict $object.metadata.labels) $labels) }}
{{- toYaml $object }}
{{- end }}

{{- /* A component's file, with its values: (list ROOT FILE VALUES). */}}
{{- define "vcnode.component" }}
{{- $root := index . 0 }}
{{- $values := index . 2 }}
{{- range $text := splitList "\n---\n" ($root.Files.Get (index . 1) | required (printf "%s is missing" (index . 1))) }}
{{- $object := printf "%s\n" $text | replace "vcnode-system" $root.Release.Namespace | fromYaml }}
{{- if dig "certManager" "enabled" false $values }}
{{- include "vcnode.withCertManager" (list $root $object) }}
{{- end }}
{{- if eq $object.kind "Deployment" }}
{{- $pod := $object.spec.template.spec }}
{{- $container := first $pod.containers }}
{{- $image := $values.image }}
{{- if $image.digest }}
{{- $_ := set $container "image" (printf "%s@%s" $image.repository $image.digest) }}
{{- else }}
{{- $_ := set $container "image" (printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag)) }}
{{- end }}
{{- $_ := set $container "imagePullPolicy" $image.pullPolicy }}
{{- $_ := set $container "resources" (mergeOverwrite $container.resources $values.resources) }}
{{- if $values.env }}
{{- $_ := set $container "env" (concat (default list $container.env) $values.env) }}
{{- end }}
{{- $_ := set $object.spec "replicas" (int $values.replicas) }}
{{- $_ := mergeOverwrite $pod $values.pod }}
{{- else if eq $object.kind "ConfigMap" }}
{{- if and $values.configuration (hasKey $object.data "config.yaml") }}
{{- $text := get $object.data "config.yaml" | fromYaml }}
{{- $_ := set $object.data "config.yaml" (mergeOverwrite $text $values.configuration | toYaml) }}
{{- end }}
{{- if hasKey $object.data "serviceCidrs" }}
{{- /* What a policy reads of the configuration. */}}
{{- range $key, $ranges := dig "superCluster" dict $values.configuration }}
{{- if hasKey $object.data $key }}{{ $_ := set $object.data $key (join "," $ranges) }}{{ end }}
{{- end }}
{{- end }}
{{- if hasKey $object.data "kubeconfig" }}
{{- $_ := set $object.data "kubeconfig" ($object.data.kubeconfig | replace "https://10.96.0.1" $values.server) }}
{{- end }}
{{- end }}
---
{{ include "vcnode.object" (list $root $object) }}
{{- end }}
{{- end }}

{{- /* The changes of packaging/webhook-cert-manager, made to one object: (list ROOT OBJECT). */}}
{{- define "vcnode.withCertManager" }}
{{- $root := index . 0 }}
{{- $object := index . 1 }}
{{- if eq $object.kind "ClusterRole" }}
{{- $rules := list }}
{{- range $rule := $object.rules }}
{{- if not (has "mutatingwebhookconfigurations" $rule.resources) }}{{ $rules = append $rules $rule }}{{ end }}
{{- end }}
{{- $_ := set $object "rules" $rules }}
{{- end }}
{{- range $text := splitList "\n---\n" ($root.Files.Get "files/webhook-cert-manager/patches.yaml") }}
{{- $patch := printf "%s\n" $text | replace "vcnode-system" $root.Release.Namespace | fromYaml }}
{{- if eq $patch.kind $object.kind }}
{{- if eq $patch.kind "Deployment" }}
{{- $volume := first $patch.spec.template.spec.volumes }}
{{- range $each := $object.spec.template.spec.volumes }}
{{- if eq $each.name $volume.name }}
{{- $_ := unset $each "emptyDir" }}
{{- $_ := set $each "secret" $volume.secret }}
{{- end }}
{{- end }}
{{- else }}
{{- $_ := mergeOverwrite $object $patch }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The webhook's certificate, with an authority of its own unless an issuer is given: (list ROOT ISSUER). */}}
{{- define "vcnode.certificates" }}
{{- $root := index . 0 }}
{{- $issuer := index . 1 }}
{{- range $text := splitList "\n---\n" ($root.Files.Get "files/webhook-cert-manager/certificates.yaml") }}
{{- $object := printf "%s\n" $text | replace "vcnode-system" $root.Release.Namespace | fromYaml }}
{{- if and $issuer (eq $object.metadata.name "dnsconfig-webhook") (eq $object.kind "Certificate") }}
{{- $_ := set $object.spec "issuerRef" (merge (dict "group" "cert-manager.io") $issuer) }}
{{- end }}
{{- if or (not $issuer) (and (eq $object.metadata.name "dnsconfig-webhook") (eq $object.kind "Certificate")) }}
---
{{ include "vcnode.object" (list $root $object) }}
{{- end }}
{{- end }}
{{- end }}
