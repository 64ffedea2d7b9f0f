//! Name formats of Kubernetes, from `util/validation` of k8s.io/apimachinery. Errors are short phrases
//! without the name.

fn is_edge(byte: Option<&u8>) -> bool {
    byte.is_some_and(u8::is_ascii_alphanumeric)
}

/// Checks a DNS-1123 subdomain, the format of most object names.
pub(crate) fn subdomain(name: &str) -> Result<(), String> {
    let part = |part: &str| {
        let bytes = part.as_bytes();
        let lower = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        bytes.first().is_some_and(lower)
            && bytes.last().is_some_and(lower)
            && bytes.iter().all(|byte| lower(byte) || *byte == b'-')
    };
    if name.len() > 253 {
        Err("it has more than 253 characters".to_owned())
    } else if name.split('.').all(part) {
        Ok(())
    } else {
        Err("lowercase letters, digits, - and . are allowed, with a letter or digit at both ends".to_owned())
    }
}

/// Checks a DNS-1035 label, the format of versions and kinds.
pub(crate) fn label(name: &str) -> Result<(), String> {
    let bytes = name.as_bytes();
    let good = name.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-');
    if good {
        Ok(())
    } else {
        Err("lowercase letters, digits and - are allowed, starting with a letter".to_owned())
    }
}

/// Checks the key of a label or annotation, with or without a prefix.
pub(crate) fn qualified(name: &str) -> Result<(), String> {
    let (prefix, bare) = match name.split_once('/') {
        Some((prefix, bare)) => (Some(prefix), bare),
        None => (None, name),
    };
    if let Some(prefix) = prefix {
        subdomain(prefix).map_err(|why| format!("before the slash, {why}"))?;
    }
    let bytes = bare.as_bytes();
    if bare.len() > 63 {
        Err("it has more than 63 characters".to_owned())
    } else if is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    {
        Ok(())
    } else {
        Err("letters, digits, -, _ and . are allowed, with a letter or digit at both ends".to_owned())
    }
}

/// Checks the value of a label, which can be empty.
pub(crate) fn label_value(value: &str) -> Result<(), String> {
    match value {
        "" => Ok(()),
        _ if value.contains('/') => Err("a slash is not allowed".to_owned()),
        _ => qualified(value),
    }
}

/// Whether a name can be a path segment, as every object name must.
pub(crate) fn is_path_segment(name: &str) -> bool {
    name != "." && name != ".." && !name.contains(['/', '%'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_kubernetes_takes() {
        for (name, good) in
            [("a", true), ("a-b.c1", true), ("A", false), ("-a", false), ("a..b", false), ("", false)]
        {
            assert_eq!(subdomain(name).is_ok(), good, "{name}");
        }
        for (name, good) in
            [("a/b", true), ("a.b/C_d", true), ("a/b/c", false), ("/a", false), ("a b", false), ("-a", false)]
        {
            assert_eq!(qualified(name).is_ok(), good, "{name}");
        }
        for (name, good) in [("v1", true), ("1v", false), ("v1beta1", true), ("V1", false)] {
            assert_eq!(label(name).is_ok(), good, "{name}");
        }
        assert!(label_value("").is_ok() && label_value("a/b").is_err());
    }
}
