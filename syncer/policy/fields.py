# SPDX-License-Identifier: Apache-2.0
"""What becomes of each field of the kinds that go down. Pure.

An object with a field that is not here is refused (`unknown_fields`).
`tests/kube_schemas` has the fields of the Kubernetes that the tests run, and a test compares both.
"""

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass

from syncer.policy.type_table import fields_by_type


class FieldVerdict(enum.StrEnum):
    """What becomes of a field. JUDGED is refused where the SyncPolicy does not allow its value."""

    ALLOWED = "allowed"
    CHANGED = "changed"
    JUDGED = "refused unless allowed"
    STAYS = "stays in the tenant"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a type. `how` is for people; `type_name` is that of its value, empty for plain values."""

    verdict: FieldVerdict
    how: str
    type_name: str


# The kinds, which are names of types as well.
KINDS = (
    "ConfigMap",
    "EndpointSlice",
    "Endpoints",
    "Ingress",
    "Namespace",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "Secret",
    "Service",
    "ServiceAccount",
)

# Of each type its fields; with a colon, the type of the field's value, or of its items.
_TYPES: Mapping[str, str] = {
    "AWSElasticBlockStoreVolumeSource": "fsType partition readOnly volumeID",
    "Affinity": "nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity",
    "AppArmorProfile": "localhostProfile type",
    "AzureDiskVolumeSource": "cachingMode diskName diskURI fsType kind readOnly",
    "AzureFileVolumeSource": "readOnly secretName shareName",
    "CSIVolumeSource": "driver fsType nodePublishSecretRef:LocalObjectReference readOnly volumeAttributes",
    "Capabilities": "add drop",
    "CephFSVolumeSource": "monitors path readOnly secretFile secretRef:LocalObjectReference user",
    "CinderVolumeSource": "fsType readOnly secretRef:LocalObjectReference volumeID",
    "ClientIPConfig": "timeoutSeconds",
    "ClusterTrustBundleProjection": "labelSelector:LabelSelector name optional path signerName",
    "ConfigMap": "apiVersion binaryData data immutable kind metadata:ObjectMeta",
    "ConfigMapEnvSource": "name optional",
    "ConfigMapKeySelector": "key name optional",
    "ConfigMapProjection": "items:KeyToPath name optional",
    "ConfigMapVolumeSource": "defaultMode items:KeyToPath name optional",
    "Container": (
        "args command env:EnvVar envFrom:EnvFromSource image imagePullPolicy lifecycle:Lifecycle "
        "livenessProbe:Probe name ports:ContainerPort readinessProbe:Probe "
        "resizePolicy:ContainerResizePolicy resources:ResourceRequirements restartPolicy "
        "restartPolicyRules:ContainerRestartRule securityContext:SecurityContext startupProbe:Probe "
        "stdin stdinOnce terminationMessagePath terminationMessagePolicy tty "
        "volumeDevices:VolumeDevice volumeMounts:VolumeMount workingDir"
    ),
    "ContainerPort": "containerPort hostIP hostPort name protocol",
    "ContainerResizePolicy": "resourceName restartPolicy",
    "ContainerRestartRule": "action exitCodes:ContainerRestartRuleOnExitCodes",
    "ContainerRestartRuleOnExitCodes": "operator values",
    "DownwardAPIProjection": "items:DownwardAPIVolumeFile",
    "DownwardAPIVolumeFile": "fieldRef:ObjectFieldSelector mode path resourceFieldRef:ResourceFieldSelector",
    "DownwardAPIVolumeSource": "defaultMode items:DownwardAPIVolumeFile",
    "EmptyDirVolumeSource": "medium sizeLimit",
    "Endpoint": (
        "addresses conditions:EndpointConditions deprecatedTopology hints:EndpointHints hostname "
        "nodeName targetRef:ObjectReference zone"
    ),
    "EndpointAddress": "hostname ip nodeName targetRef:ObjectReference",
    "EndpointConditions": "ready serving terminating",
    "EndpointHints": "forNodes:ForNode forZones:ForZone",
    "EndpointPort": "appProtocol name port protocol",
    "EndpointSlice": "addressType apiVersion endpoints:Endpoint kind metadata:ObjectMeta ports:EndpointPort",
    "EndpointSubset": "addresses:EndpointAddress notReadyAddresses:EndpointAddress ports:EndpointPort",
    "Endpoints": "apiVersion kind metadata:ObjectMeta subsets:EndpointSubset",
    "EnvFromSource": "configMapRef:ConfigMapEnvSource prefix secretRef:SecretEnvSource",
    "EnvVar": "name value valueFrom:EnvVarSource",
    "EnvVarSource": (
        "configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector fileKeyRef:FileKeySelector "
        "resourceFieldRef:ResourceFieldSelector secretKeyRef:SecretKeySelector"
    ),
    "EphemeralContainer": (
        "args command env:EnvVar envFrom:EnvFromSource image imagePullPolicy lifecycle:Lifecycle "
        "livenessProbe:Probe name ports:ContainerPort readinessProbe:Probe "
        "resizePolicy:ContainerResizePolicy resources:ResourceRequirements restartPolicy "
        "restartPolicyRules:ContainerRestartRule securityContext:SecurityContext startupProbe:Probe "
        "stdin stdinOnce targetContainerName terminationMessagePath terminationMessagePolicy tty "
        "volumeDevices:VolumeDevice volumeMounts:VolumeMount workingDir"
    ),
    "EphemeralVolumeSource": "volumeClaimTemplate:PersistentVolumeClaimTemplate",
    "ExecAction": "command",
    "FCVolumeSource": "fsType lun readOnly targetWWNs wwids",
    "FileKeySelector": "key optional path volumeName",
    "FlexVolumeSource": "driver fsType options readOnly secretRef:LocalObjectReference",
    "FlockerVolumeSource": "datasetName datasetUUID",
    "ForNode": "name",
    "ForZone": "name",
    "GCEPersistentDiskVolumeSource": "fsType partition pdName readOnly",
    "GRPCAction": "port service",
    "GitRepoVolumeSource": "directory repository revision",
    "GlusterfsVolumeSource": "endpoints path readOnly",
    "HTTPGetAction": "host httpHeaders:HTTPHeader path port scheme",
    "HTTPHeader": "name value",
    "HTTPIngressPath": "backend:IngressBackend path pathType",
    "HTTPIngressRuleValue": "paths:HTTPIngressPath",
    "HostAlias": "hostnames ip",
    "HostPathVolumeSource": "path type",
    "IPBlock": "cidr except",
    "ISCSIVolumeSource": (
        "chapAuthDiscovery chapAuthSession fsType initiatorName iqn iscsiInterface lun portals "
        "readOnly secretRef:LocalObjectReference targetPortal"
    ),
    "ImageVolumeSource": "pullPolicy reference",
    "Ingress": "apiVersion kind metadata:ObjectMeta spec:IngressSpec status",
    "IngressBackend": "resource:TypedLocalObjectReference service:IngressServiceBackend",
    "IngressRule": "host http:HTTPIngressRuleValue",
    "IngressServiceBackend": "name port:ServiceBackendPort",
    "IngressSpec": "defaultBackend:IngressBackend ingressClassName rules:IngressRule tls:IngressTLS",
    "IngressTLS": "hosts secretName",
    "KeyToPath": "key mode path",
    "LabelSelector": "matchExpressions:LabelSelectorRequirement matchLabels",
    "LabelSelectorRequirement": "key operator values",
    "Lifecycle": "postStart:LifecycleHandler preStop:LifecycleHandler stopSignal",
    "LifecycleHandler": "exec:ExecAction httpGet:HTTPGetAction sleep:SleepAction tcpSocket:TCPSocketAction",
    "LocalObjectReference": "name",
    "NFSVolumeSource": "path readOnly server",
    "Namespace": "apiVersion kind metadata:ObjectMeta spec:NamespaceSpec status",
    "NamespaceSpec": "finalizers",
    "NetworkPolicy": "apiVersion kind metadata:ObjectMeta spec:NetworkPolicySpec",
    "NetworkPolicyEgressRule": "ports:NetworkPolicyPort to:NetworkPolicyPeer",
    "NetworkPolicyIngressRule": "from:NetworkPolicyPeer ports:NetworkPolicyPort",
    "NetworkPolicyPeer": "ipBlock:IPBlock namespaceSelector:LabelSelector podSelector:LabelSelector",
    "NetworkPolicyPort": "endPort port protocol",
    "NetworkPolicySpec": (
        "egress:NetworkPolicyEgressRule ingress:NetworkPolicyIngressRule podSelector:LabelSelector "
        "policyTypes"
    ),
    "NodeAffinity": (
        "preferredDuringSchedulingIgnoredDuringExecution:PreferredSchedulingTerm "
        "requiredDuringSchedulingIgnoredDuringExecution:NodeSelector"
    ),
    "NodeSelector": "nodeSelectorTerms:NodeSelectorTerm",
    "NodeSelectorRequirement": "key operator values",
    "NodeSelectorTerm": "matchExpressions:NodeSelectorRequirement matchFields:NodeSelectorRequirement",
    "ObjectFieldSelector": "apiVersion fieldPath",
    "ObjectMeta": (
        "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers "
        "generateName generation labels managedFields name namespace ownerReferences resourceVersion "
        "selfLink uid"
    ),
    "ObjectReference": "apiVersion fieldPath kind name namespace resourceVersion uid",
    "PersistentVolumeClaim": "apiVersion kind metadata:ObjectMeta spec:PersistentVolumeClaimSpec status",
    "PersistentVolumeClaimSpec": (
        "accessModes dataSource:TypedLocalObjectReference dataSourceRef:TypedObjectReference "
        "resources:VolumeResourceRequirements selector:LabelSelector storageClassName "
        "volumeAttributesClassName volumeMode volumeName"
    ),
    "PersistentVolumeClaimTemplate": "metadata:ObjectMeta spec:PersistentVolumeClaimSpec",
    "PersistentVolumeClaimVolumeSource": "claimName readOnly",
    "PhotonPersistentDiskVolumeSource": "fsType pdID",
    "Pod": "apiVersion kind metadata:ObjectMeta spec:PodSpec status",
    "PodAffinity": (
        "preferredDuringSchedulingIgnoredDuringExecution:WeightedPodAffinityTerm "
        "requiredDuringSchedulingIgnoredDuringExecution:PodAffinityTerm"
    ),
    "PodAffinityTerm": (
        "labelSelector:LabelSelector matchLabelKeys mismatchLabelKeys namespaceSelector:LabelSelector "
        "namespaces topologyKey"
    ),
    "PodAntiAffinity": (
        "preferredDuringSchedulingIgnoredDuringExecution:WeightedPodAffinityTerm "
        "requiredDuringSchedulingIgnoredDuringExecution:PodAffinityTerm"
    ),
    "PodCertificateProjection": (
        "certificateChainPath credentialBundlePath keyPath keyType maxExpirationSeconds signerName"
    ),
    "PodDNSConfig": "nameservers options:PodDNSConfigOption searches",
    "PodDNSConfigOption": "name value",
    "PodDisruptionBudget": "apiVersion kind metadata:ObjectMeta spec:PodDisruptionBudgetSpec status",
    "PodDisruptionBudgetSpec": (
        "maxUnavailable minAvailable selector:LabelSelector unhealthyPodEvictionPolicy"
    ),
    "PodOS": "name",
    "PodReadinessGate": "conditionType",
    "PodResourceClaim": "name resourceClaimName resourceClaimTemplateName",
    "PodSchedulingGate": "name",
    "PodSecurityContext": (
        "appArmorProfile:AppArmorProfile fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot "
        "runAsUser seLinuxChangePolicy seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile "
        "supplementalGroups supplementalGroupsPolicy sysctls:Sysctl "
        "windowsOptions:WindowsSecurityContextOptions"
    ),
    "PodSpec": (
        "activeDeadlineSeconds affinity:Affinity automountServiceAccountToken containers:Container "
        "dnsConfig:PodDNSConfig dnsPolicy enableServiceLinks ephemeralContainers:EphemeralContainer "
        "hostAliases:HostAlias hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride "
        "imagePullSecrets:LocalObjectReference initContainers:Container nodeName nodeSelector "
        "os:PodOS overhead preemptionPolicy priority priorityClassName "
        "readinessGates:PodReadinessGate resourceClaims:PodResourceClaim "
        "resources:ResourceRequirements restartPolicy runtimeClassName schedulerName "
        "schedulingGates:PodSchedulingGate securityContext:PodSecurityContext serviceAccount "
        "serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
        "terminationGracePeriodSeconds tolerations:Toleration "
        "topologySpreadConstraints:TopologySpreadConstraint volumes:Volume"
    ),
    "PortworxVolumeSource": "fsType readOnly volumeID",
    "PreferredSchedulingTerm": "preference:NodeSelectorTerm weight",
    "Probe": (
        "exec:ExecAction failureThreshold grpc:GRPCAction httpGet:HTTPGetAction initialDelaySeconds "
        "periodSeconds successThreshold tcpSocket:TCPSocketAction terminationGracePeriodSeconds "
        "timeoutSeconds"
    ),
    "ProjectedVolumeSource": "defaultMode sources:VolumeProjection",
    "QuobyteVolumeSource": "group readOnly registry tenant user volume",
    "RBDVolumeSource": "fsType image keyring monitors pool readOnly secretRef:LocalObjectReference user",
    "ResourceClaim": "name request",
    "ResourceFieldSelector": "containerName divisor resource",
    "ResourceRequirements": "claims:ResourceClaim limits requests",
    "SELinuxOptions": "level role type user",
    "ScaleIOVolumeSource": (
        "fsType gateway protectionDomain readOnly secretRef:LocalObjectReference sslEnabled "
        "storageMode storagePool system volumeName"
    ),
    "SeccompProfile": "localhostProfile type",
    "Secret": "apiVersion data immutable kind metadata:ObjectMeta stringData type",
    "SecretEnvSource": "name optional",
    "SecretKeySelector": "key name optional",
    "SecretProjection": "items:KeyToPath name optional",
    "SecretVolumeSource": "defaultMode items:KeyToPath optional secretName",
    "SecurityContext": (
        "allowPrivilegeEscalation appArmorProfile:AppArmorProfile capabilities:Capabilities "
        "privileged procMount readOnlyRootFilesystem runAsGroup runAsNonRoot runAsUser "
        "seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile "
        "windowsOptions:WindowsSecurityContextOptions"
    ),
    "Service": "apiVersion kind metadata:ObjectMeta spec:ServiceSpec status",
    "ServiceAccount": (
        "apiVersion automountServiceAccountToken imagePullSecrets:LocalObjectReference kind "
        "metadata:ObjectMeta secrets:ObjectReference"
    ),
    "ServiceAccountTokenProjection": "audience expirationSeconds path",
    "ServiceBackendPort": "name number",
    "ServicePort": "appProtocol name nodePort port protocol targetPort",
    "ServiceSpec": (
        "allocateLoadBalancerNodePorts clusterIP clusterIPs externalIPs externalName "
        "externalTrafficPolicy healthCheckNodePort internalTrafficPolicy ipFamilies ipFamilyPolicy "
        "loadBalancerClass loadBalancerIP loadBalancerSourceRanges ports:ServicePort "
        "publishNotReadyAddresses selector sessionAffinity "
        "sessionAffinityConfig:SessionAffinityConfig trafficDistribution type"
    ),
    "SessionAffinityConfig": "clientIP:ClientIPConfig",
    "SleepAction": "seconds",
    "StorageOSVolumeSource": "fsType readOnly secretRef:LocalObjectReference volumeName volumeNamespace",
    "Sysctl": "name value",
    "TCPSocketAction": "host port",
    "Toleration": "effect key operator tolerationSeconds value",
    "TopologySpreadConstraint": (
        "labelSelector:LabelSelector matchLabelKeys maxSkew minDomains nodeAffinityPolicy "
        "nodeTaintsPolicy topologyKey whenUnsatisfiable"
    ),
    "TypedLocalObjectReference": "apiGroup kind name",
    "TypedObjectReference": "apiGroup kind name namespace",
    "Volume": (
        "awsElasticBlockStore:AWSElasticBlockStoreVolumeSource azureDisk:AzureDiskVolumeSource "
        "azureFile:AzureFileVolumeSource cephfs:CephFSVolumeSource cinder:CinderVolumeSource "
        "configMap:ConfigMapVolumeSource csi:CSIVolumeSource downwardAPI:DownwardAPIVolumeSource "
        "emptyDir:EmptyDirVolumeSource ephemeral:EphemeralVolumeSource fc:FCVolumeSource "
        "flexVolume:FlexVolumeSource flocker:FlockerVolumeSource "
        "gcePersistentDisk:GCEPersistentDiskVolumeSource gitRepo:GitRepoVolumeSource "
        "glusterfs:GlusterfsVolumeSource hostPath:HostPathVolumeSource image:ImageVolumeSource "
        "iscsi:ISCSIVolumeSource name nfs:NFSVolumeSource "
        "persistentVolumeClaim:PersistentVolumeClaimVolumeSource "
        "photonPersistentDisk:PhotonPersistentDiskVolumeSource portworxVolume:PortworxVolumeSource "
        "projected:ProjectedVolumeSource quobyte:QuobyteVolumeSource rbd:RBDVolumeSource "
        "scaleIO:ScaleIOVolumeSource secret:SecretVolumeSource storageos:StorageOSVolumeSource "
        "vsphereVolume:VsphereVirtualDiskVolumeSource"
    ),
    "VolumeDevice": "devicePath name",
    "VolumeMount": "mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr",
    "VolumeProjection": (
        "clusterTrustBundle:ClusterTrustBundleProjection configMap:ConfigMapProjection "
        "downwardAPI:DownwardAPIProjection podCertificate:PodCertificateProjection "
        "secret:SecretProjection serviceAccountToken:ServiceAccountTokenProjection"
    ),
    "VolumeResourceRequirements": "limits requests",
    "VsphereVirtualDiskVolumeSource": "fsType storagePolicyID storagePolicyName volumePath",
    "WeightedPodAffinityTerm": "podAffinityTerm:PodAffinityTerm weight",
    "WindowsSecurityContextOptions": "gmsaCredentialSpec gmsaCredentialSpecName hostProcess runAsUserName",
}

_SELECTOR = "keys as those of pods' labels"
_OWN_DNS = "the tenant's DNS, unless nodes give pods their resolver"
_ADMISSION = "the super cluster's admission computes it from its own classes"
_PROFILES = "`pods.privileged`"

# What is not simply allowed, with what becomes of it. Names between backticks are fields of a SyncPolicy.
CHANGED: Mapping[str, str] = {
    "ConfigMapEnvSource.name": "`kube-root-ca.crt` is the tenant's, under another name",
    "ConfigMapKeySelector.name": "`kube-root-ca.crt` is the tenant's, under another name",
    "ConfigMapProjection.name": "`kube-root-ca.crt` is the tenant's, under another name",
    "ConfigMapVolumeSource.name": "`kube-root-ca.crt` is the tenant's, under another name",
    "Container.env": "with the variables of the tenant's Services",
    "Container.imagePullPolicy": "to `Always`, unless `pods.imagePull` is `AsWritten`",
    "Endpoint.nodeName": "that of the super pod",
    "Endpoint.targetRef": "the super pod; none if the tenant has no such pod",
    "EndpointAddress.nodeName": "that of the super pod",
    "EndpointAddress.targetRef": "the super pod; none if the tenant has no such pod",
    "EphemeralContainer.env": "with the variables of the tenant's Services",
    "EphemeralContainer.imagePullPolicy": "to `Always`, unless `pods.imagePull` is `AsWritten`",
    "ImageVolumeSource.pullPolicy": "to `Always`, unless `pods.imagePull` is `AsWritten`",
    "NetworkPolicyPeer.namespaceSelector": "to labels of super namespaces, and the tenant's own pods",
    "NetworkPolicyPeer.podSelector": _SELECTOR,
    "NetworkPolicySpec.podSelector": _SELECTOR,
    "ObjectFieldSelector.fieldPath": "to what has the tenant's own value",
    "ObjectMeta.annotations": "by key: see *Labels and annotations*",
    "ObjectMeta.labels": "by key: see *Labels and annotations*",
    "ObjectMeta.name": "of the ConfigMap `kube-root-ca.crt`, which each cluster makes, and of namespaces",
    "ObjectMeta.namespace": "to the super namespace",
    "ObjectMeta.ownerReferences": "to an annotation, for the syncer",
    "PodAffinityTerm.labelSelector": f"{_SELECTOR}, and the tenant's own pods alone",
    "PodAffinityTerm.matchLabelKeys": _SELECTOR,
    "PodAffinityTerm.mismatchLabelKeys": _SELECTOR,
    "PodAffinityTerm.namespaceSelector": "to labels of super namespaces",
    "PodAffinityTerm.namespaces": "to super namespaces",
    "PodDisruptionBudgetSpec.maxUnavailable": "to the number of pods that must stay, by the tenant's count",
    "PodDisruptionBudgetSpec.minAvailable": "to the number of pods that must stay, by the tenant's count",
    "PodDisruptionBudgetSpec.selector": _SELECTOR,
    "PodSpec.automountServiceAccountToken": "to false: tokens are the tenant's, from a Secret",
    "PodSpec.dnsConfig": _OWN_DNS,
    "PodSpec.dnsPolicy": _OWN_DNS,
    "PodSpec.ephemeralContainers": "through their subresource",
    "PodSpec.hostAliases": "with the tenant's API server",
    "Secret.type": "of a service account's token to Opaque",
    "ServicePort.nodePort": "the super cluster's",
    "ServiceSpec.clusterIP": "the super cluster's; the tenant's is in an annotation",
    "ServiceSpec.clusterIPs": "the super cluster's; the tenant's are in an annotation",
    "ServiceSpec.selector": _SELECTOR,
    "TopologySpreadConstraint.labelSelector": _SELECTOR,
    "TopologySpreadConstraint.matchLabelKeys": _SELECTOR,
    "Volume.ephemeral": "to the claim that the tenant's controller makes",
    "VolumeProjection.serviceAccountToken": "to a Secret with the tenant's token",
}
JUDGED: Mapping[str, str] = {
    "AppArmorProfile.type": _PROFILES,
    "CSIVolumeSource.driver": "`pods.csiDrivers`",
    "Capabilities.add": "`pods.capabilities`",
    "ContainerPort.hostPort": "`pods.hostPorts`",
    "Endpoint.addresses": "the tenant's own pods, `endpoints.deniedCIDRs`, `endpoints.allowedCIDRs`",
    "EndpointAddress.ip": "the tenant's own pods, `endpoints.deniedCIDRs`, `endpoints.allowedCIDRs`",
    "EndpointSlice.addressType": "FQDN stays in the tenant without `services.types`",
    "HTTPGetAction.host": "`pods.allowHandlerHosts`",
    "IngressRule.host": "`ingresses.hosts`",
    "IngressSpec.defaultBackend": "`ingresses.hosts`",
    "IngressSpec.ingressClassName": "`ingresses.classes`",
    "IngressTLS.hosts": "`ingresses.hosts`",
    "NetworkPolicySpec.egress": "`networkPolicies.maxPeers`",
    "NetworkPolicySpec.ingress": "`networkPolicies.maxPeers`",
    "NodeSelectorTerm.matchExpressions": "`pods.nodeLabels`",
    "NodeSelectorTerm.matchFields": "`metadata.name` alone",
    "PersistentVolumeClaimSpec.storageClassName": "`claims.storageClasses`",
    "PersistentVolumeClaimSpec.volumeAttributesClassName": "`claims.volumeAttributesClasses`",
    "PodAffinityTerm.topologyKey": "`pods.nodeLabels`",
    "PodSecurityContext.sysctls": "`pods.sysctls`",
    "PodSpec.hostIPC": "`pods.hostNamespaces`",
    "PodSpec.hostNetwork": "`pods.hostNamespaces`",
    "PodSpec.hostPID": "`pods.hostNamespaces`",
    "PodSpec.hostUsers": "`pods.hostUsers`",
    "PodSpec.nodeName": "`pods.allowNodeName`",
    "PodSpec.nodeSelector": "`pods.nodeLabels`",
    "PodSpec.priorityClassName": "`pods.priorityClasses`",
    "PodSpec.resourceClaims": "`pods.allowResourceClaims`",
    "PodSpec.runtimeClassName": "`pods.runtimeClass`, `pods.runtimeClasses`",
    "PodSpec.schedulerName": "`pods.schedulers`",
    "ResourceRequirements.claims": "`pods.allowResourceClaims`",
    "ResourceRequirements.limits": "`pods.extendedResources`",
    "ResourceRequirements.requests": "`pods.extendedResources`",
    "SELinuxOptions.role": "never",
    "SELinuxOptions.type": "`pods.seLinuxTypes`",
    "SELinuxOptions.user": "never",
    "SeccompProfile.type": _PROFILES,
    "SecurityContext.privileged": "`pods.privileged`",
    "SecurityContext.procMount": _PROFILES,
    "ServiceSpec.allocateLoadBalancerNodePorts": "`services.types` with NodePort",
    "ServiceSpec.externalIPs": "`services.externalCIDRs`",
    "ServiceSpec.externalName": "`services.externalNames`",
    "ServiceSpec.loadBalancerClass": "`services.loadBalancerClasses`",
    "ServiceSpec.loadBalancerIP": "`services.loadBalancerCIDRs`",
    "ServiceSpec.type": "`services.types`; an ExternalName stays in the tenant",
    "TCPSocketAction.host": "`pods.allowHandlerHosts`",
    "Toleration.key": "`pods.tolerationKeys`",
    "TopologySpreadConstraint.topologyKey": "`pods.nodeLabels`",
    "TypedObjectReference.namespace": "never",
    **{
        f"Volume.{name}": "`pods.volumeTypes`"
        for name in (
            *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "fc", "flexVolume"),
            *("flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "hostPath", "iscsi", "nfs"),
            *("photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos"),
            "vsphereVolume",
        )
    },
    "VolumeMount.mountPropagation": "Bidirectional never",
    "VolumeProjection.clusterTrustBundle": "`pods.projectedSources`",
    "VolumeProjection.podCertificate": "never",
    "WindowsSecurityContextOptions.hostProcess": "never",
}
STAYS: Mapping[str, str] = {
    **{f"{kind}.status": "the super cluster's comes up" for kind in KINDS},
    "PodDisruptionBudget.status": "the tenant's disruption controller writes it",
    "NamespaceSpec.finalizers": "each cluster's own",
    "ObjectMeta.creationTimestamp": "each cluster's own",
    "ObjectMeta.deletionGracePeriodSeconds": "a deletion is carried",
    "ObjectMeta.deletionTimestamp": "a deletion is carried",
    "ObjectMeta.finalizers": "they are carried out in the tenant",
    "ObjectMeta.generation": "each cluster's own",
    "ObjectMeta.managedFields": "each cluster's own",
    "ObjectMeta.resourceVersion": "each cluster's own",
    "ObjectMeta.selfLink": "each cluster's own",
    "ObjectMeta.uid": "in an annotation",
    "PersistentVolumeClaimTemplate.metadata": "the tenant's controller makes the claim",
    "PodSpec.overhead": _ADMISSION,
    "PodSpec.preemptionPolicy": _ADMISSION,
    "PodSpec.priority": _ADMISSION,
    "PodSpec.subdomain": "the tenant's DNS has the name",
    "ServiceAccount.secrets": "tokens of the tenant's",
    "ServiceSpec.healthCheckNodePort": "the super cluster's own",
}


_same = functools.cache(Field)  # most are equal to others


def _field(path: str, below: str) -> Field:
    for verdict, notes in (
        (FieldVerdict.CHANGED, CHANGED),
        (FieldVerdict.JUDGED, JUDGED),
        (FieldVerdict.STAYS, STAYS),
    ):
        if path in notes:
            return _same(verdict, notes[path], below)
    return _same(FieldVerdict.ALLOWED, "", below)


FIELDS: Mapping[str, Mapping[str, Field]] = fields_by_type(_TYPES, _field)
"""By type and name."""
