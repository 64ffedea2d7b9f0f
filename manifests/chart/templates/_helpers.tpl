{{/* The labels of every object of the chart. */}}
{{- define "portcullis.labels" -}}
app.kubernetes.io/name: portcullis
app.kubernetes.io/part-of: portcullis
{{- end }}

{{/* The image: by digest if there is one, else by tag, else by the version of the chart. */}}
{{- define "portcullis.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}
