"""Functions that Kubernetes itself declares."""

from typing import Final

KUBERNETES: Final = {
    "add": """
        quantity_add: quantity.(quantity) -> quantity
        quantity_add_int: quantity.(int) -> quantity
    """,
    "asApproximateFloat": "quantity_get_float: quantity.() -> double",
    "asInteger": "quantity_get_int: quantity.() -> int",
    "compareTo": """
        quantity_compare_to: quantity.(quantity) -> int
        semver_compare_to: semver.(semver) -> int
    """,
    "format.byte": "format.byte: () -> format",
    "format.date": "format.date: () -> format",
    "format.datetime": "format.datetime: () -> format",
    "format.dns1035Label": "format.dns1035Label: () -> format",
    "format.dns1035LabelPrefix": "format.dns1035LabelPrefix: () -> format",
    "format.dns1123Label": "format.dns1123Label: () -> format",
    "format.dns1123LabelPrefix": "format.dns1123LabelPrefix: () -> format",
    "format.dns1123Subdomain": "format.dns1123Subdomain: () -> format",
    "format.dns1123SubdomainPrefix": "format.dns1123SubdomainPrefix: () -> format",
    "format.labelValue": "format.labelValue: () -> format",
    "format.named": "format-named: (string) -> optional(format)",
    "format.qualifiedName": "format.qualifiedName: () -> format",
    "format.uri": "format.uri: () -> format",
    "format.uuid": "format.uuid: () -> format",
    "isGreaterThan": """
        quantity_is_greater_than: quantity.(quantity) -> bool
        semver_is_greater_than: semver.(semver) -> bool
    """,
    "isInteger": "quantity_is_integer: quantity.() -> bool",
    "isLessThan": """
        quantity_is_less_than: quantity.(quantity) -> bool
        semver_is_less_than: semver.(semver) -> bool
    """,
    "isQuantity": "is_quantity_string: (string) -> bool",
    "isSemver": """
        is_semver_string: (string) -> bool
        is_semver_string_bool: (string, bool) -> bool
    """,
    "major": "semver_major: semver.() -> int",
    "minor": "semver_minor: semver.() -> int",
    "patch": "semver_patch: semver.() -> int",
    "quantity": "string_to_quantity: (string) -> quantity",
    "semver": """
        string_to_semver: (string) -> semver
        string_bool_to_semver: (string, bool) -> semver
    """,
    "sign": "quantity_sign: (quantity) -> int",
    "sub": """
        quantity_sub: quantity.(quantity) -> quantity
        quantity_sub_int: quantity.(int) -> quantity
    """,
    "validate": "format-validate: format.(string) -> optional(list(string))",
}

NETWORK: Final = {
    "cidr": "string_to_cidr: (string) -> cidr",
    "containsCIDR": """
        cidr_contains_cidr_string: cidr.(string) -> bool
        cidr_contains_cidr: cidr.(cidr) -> bool
    """,
    "containsIP": """
        cidr_contains_ip_string: cidr.(string) -> bool
        cidr_contains_ip_ip: cidr.(ip) -> bool
    """,
    "family": "ip_family: ip.() -> int",
    "getEscapedPath": "url_get_escaped_path: url.() -> string",
    "getHost": "url_get_host: url.() -> string",
    "getHostname": "url_get_hostname: url.() -> string",
    "getPort": "url_get_port: url.() -> string",
    "getQuery": "url_get_query: url.() -> map(string, list(string))",
    "getScheme": "url_get_scheme: url.() -> string",
    "ip": """
        string_to_ip: (string) -> ip
        cidr_ip: cidr.() -> ip
    """,
    "ip.isCanonical": "ip_is_canonical: (string) -> bool",
    "isCIDR": "is_cidr: (string) -> bool",
    "isGlobalUnicast": "ip_is_global_unicast: ip.() -> bool",
    "isIP": "is_ip: (string) -> bool",
    "isLinkLocalMulticast": "ip_is_link_local_multicast: ip.() -> bool",
    "isLinkLocalUnicast": "ip_is_link_local_unicast: ip.() -> bool",
    "isLoopback": "ip_is_loopback: ip.() -> bool",
    "isURL": "is_url_string: (string) -> bool",
    "isUnspecified": "ip_is_unspecified: ip.() -> bool",
    "masked": "cidr_masked: cidr.() -> cidr",
    "prefixLength": "cidr_prefix_length: cidr.() -> int",
    "url": "string_to_url: (string) -> url",
}

AUTHORIZATION: Final = {
    "allowed": "decision_allowed: Decision.() -> bool",
    "check": """
        pathcheck_check: PathCheck.(string) -> Decision
        resourcecheck_check: ResourceCheck.(string) -> Decision
    """,
    "error": "decision_error: Decision.() -> string",
    "errored": "decision_errored: Decision.() -> bool",
    "fieldSelector": "authorizer_fieldselector: ResourceCheck.(string) -> ResourceCheck",
    "group": "authorizer_group: Authorizer.(string) -> GroupCheck",
    "labelSelector": "authorizer_labelselector: ResourceCheck.(string) -> ResourceCheck",
    "name": "resourcecheck_name: ResourceCheck.(string) -> ResourceCheck",
    "namespace": "resourcecheck_namespace: ResourceCheck.(string) -> ResourceCheck",
    "path": "authorizer_path: Authorizer.(string) -> PathCheck",
    "reason": "decision_reason: Decision.() -> string",
    "resource": "groupcheck_resource: GroupCheck.(string) -> ResourceCheck",
    "serviceAccount": "authorizer_serviceaccount: Authorizer.(string, string) -> Authorizer",
    "subresource": "resourcecheck_subresource: ResourceCheck.(string) -> ResourceCheck",
}
"""Declared in every environment. No value in a selector has these types."""

INCLUDES: Final = {"includes": "dra_includes_dyn_dyn: dyn.(dyn) -> bool"}
"""A DRA function behind the gate DRAListTypeAttributes, new in 1.36."""

SINCE_137: Final = {
    "duration": """
        duration_to_duration: (duration) -> duration
        string_to_duration: (string) -> duration
    """,
    "indexOf": """
        string_index_of_string: string.(string) -> int
        string_index_of_string_int: string.(string, int) -> int
        list_a_index_of_int: list(A).(A) -> int
    """,
    "lastIndexOf": """
        string_last_index_of_string: string.(string) -> int
        string_last_index_of_string_int: string.(string, int) -> int
        list_a_last_index_of_int: list(A).(A) -> int
    """,
}
"""Declarations that differ in 1.37: no duration from an int, and strings before lists."""

INCLUDES_137: Final = {"includes": "list_includes_dyn_dyn: dyn.(dyn) -> bool"}
"""A function of Kubernetes' list library since 1.37."""
