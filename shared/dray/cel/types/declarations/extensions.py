"""Functions of cel-go's extensions that Kubernetes enables."""

from typing import Final

OPTIONALS: Final = {
    "first": "list_first: list(V).() -> optional(V)",
    "hasValue": "optional_hasValue: optional(V).() -> bool",
    "last": "list_last: list(V).() -> optional(V)",
    "optional.none": "optional_none: () -> optional(V)",
    "optional.of": "optional_of: (V) -> optional(V)",
    "optional.ofNonZeroValue": "optional_ofNonZeroValue: (V) -> optional(V)",
    "optional.unwrap": "optional_unwrap: (list(optional(V))) -> list(V)",
    "or": "optional_or_optional: optional(V).(optional(V)) -> optional(V)",
    "orValue": "optional_orValue_value: optional(V).(V) -> V",
    "unwrapOpt": "optional_unwrapOpt: list(optional(V)).() -> list(V)",
    "value": "optional_value: optional(V).() -> V",
}

STRINGS: Final = {
    "charAt": "string_char_at_int: string.(int) -> string",
    "find": "string_find_string: string.(string) -> string",
    "findAll": """
        string_find_all_string: string.(string) -> list(string)
        string_find_all_string_int: string.(string, int) -> list(string)
    """,
    "format": "string_format: string.(list(dyn)) -> string",
    "indexOf": """
        list_a_index_of_int: list(A).(A) -> int
        string_index_of_string: string.(string) -> int
        string_index_of_string_int: string.(string, int) -> int
    """,
    "join": """
        list_join: list(string).() -> string
        list_join_string: list(string).(string) -> string
    """,
    "lastIndexOf": """
        list_a_last_index_of_int: list(A).(A) -> int
        string_last_index_of_string: string.(string) -> int
        string_last_index_of_string_int: string.(string, int) -> int
    """,
    "lowerAscii": "string_lower_ascii: string.() -> string",
    "replace": """
        string_replace_string_string: string.(string, string) -> string
        string_replace_string_string_int: string.(string, string, int) -> string
    """,
    "split": """
        string_split_string: string.(string) -> list(string)
        string_split_string_int: string.(string, int) -> list(string)
    """,
    "strings.quote": "strings_quote: (string) -> string",
    "substring": """
        string_substring_int: string.(int) -> string
        string_substring_int_int: string.(int, int) -> string
    """,
    "trim": "string_trim: string.() -> string",
    "upperAscii": "string_upper_ascii: string.() -> string",
}
"""Also the regular expressions and list methods that Kubernetes adds under the same names."""

LISTS: Final = {
    "isSorted": """
        list_int_is_sorted_bool: list(int).() -> bool
        list_uint_is_sorted_bool: list(uint).() -> bool
        list_double_is_sorted_bool: list(double).() -> bool
        list_bool_is_sorted_bool: list(bool).() -> bool
        list_duration_is_sorted_bool: list(duration).() -> bool
        list_timestamp_is_sorted_bool: list(timestamp).() -> bool
        list_string_is_sorted_bool: list(string).() -> bool
        list_bytes_is_sorted_bool: list(bytes).() -> bool
    """,
    "max": """
        list_int_max_int: list(int).() -> int
        list_uint_max_uint: list(uint).() -> uint
        list_double_max_double: list(double).() -> double
        list_bool_max_bool: list(bool).() -> bool
        list_duration_max_duration: list(duration).() -> duration
        list_timestamp_max_timestamp: list(timestamp).() -> timestamp
        list_string_max_string: list(string).() -> string
        list_bytes_max_bytes: list(bytes).() -> bytes
    """,
    "min": """
        list_int_min_int: list(int).() -> int
        list_uint_min_uint: list(uint).() -> uint
        list_double_min_double: list(double).() -> double
        list_bool_min_bool: list(bool).() -> bool
        list_duration_min_duration: list(duration).() -> duration
        list_timestamp_min_timestamp: list(timestamp).() -> timestamp
        list_string_min_string: list(string).() -> string
        list_bytes_min_bytes: list(bytes).() -> bytes
    """,
    "sets.contains": "list_sets_contains_list: (list(T), list(T)) -> bool",
    "sets.equivalent": "list_sets_equivalent_list: (list(T), list(T)) -> bool",
    "sets.intersects": "list_sets_intersects_list: (list(T), list(T)) -> bool",
    "sum": """
        list_int_sum_int: list(int).() -> int
        list_uint_sum_uint: list(uint).() -> uint
        list_double_sum_double: list(double).() -> double
        list_duration_sum_duration: list(duration).() -> duration
    """,
}

LIST_LIBRARY: Final = {
    "distinct": "list_distinct: list(T).() -> list(T)",
    "flatten": """
        list_flatten: list(list(T)).() -> list(T)
        list_flatten_int: list(dyn).(int) -> list(dyn)
    """,
    "lists.range": "lists_range: (int) -> list(int)",
    "reverse": "list_reverse: list(T).() -> list(T)",
    "slice": "list_slice: list(T).(int, int) -> list(T)",
    "sort": """
        list_int_sort: list(int).() -> list(int)
        list_uint_sort: list(uint).() -> list(uint)
        list_double_sort: list(double).() -> list(double)
        list_bool_sort: list(bool).() -> list(bool)
        list_google.protobuf.Duration_sort: list(duration).() -> list(duration)
        list_google.protobuf.Timestamp_sort: list(timestamp).() -> list(timestamp)
        list_string_sort: list(string).() -> list(string)
        list_bytes_sort: list(bytes).() -> list(bytes)
    """,
}
"""cel-go's lists, version 3: in Kubernetes since 1.34."""
