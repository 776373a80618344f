{{- /* SPDX-License-Identifier: Apache-2.0 */}}
{{- /* One shipped file: all its objects, with this release's namespace and labels.
       Called with (list ROOT FILE). */}}
{{- define "vcnode.file" }}
{{- $root := index . 0 }}
{{- range $text := splitList "\n---\n" ($root.Files.Get (index . 1) | required (printf "%s is missing" (index . 1))) }}
{{- $object := $text | replace "vcnode-system" $root.Release.Namespace | fromYaml }}
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
{{- $object := $text | replace "vcnode-system" $root.Release.Namespace | fromYaml }}
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
{{- $_ := set $object.spec "replicas" (int $values.replicas) }}
{{- $_ := mergeOverwrite $pod $values.pod }}
{{- else if eq $object.kind "ConfigMap" }}
{{- if $values.configuration }}
{{- $text := get $object.data "config.yaml" | fromYaml }}
{{- $_ := set $object.data "config.yaml" (mergeOverwrite $text $values.configuration | toYaml) }}
{{- end }}
{{- if hasKey $object.data "kubeconfig" }}
{{- $_ := set $object.data "kubeconfig" ($object.data.kubeconfig | replace "https://10.96.0.1" $values.server) }}
{{- end }}
{{- end }}
---
{{ include "vcnode.object" (list $root $object) }}
{{- end }}
{{- end }}
