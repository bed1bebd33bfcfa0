//! Attributes that a subsystem and its devices have at first: a table of names and values, as
//! `anabranch set` takes them.

use anabranch_host::config::SubsystemSettings;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Spanned, Value};

/// `[subsystem.attributes]`.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Attributes(BTreeMap<Spanned<String>, Value>);

impl Attributes {
    /// Sets them.
    ///
    /// # Errors
    /// The first that cannot be set, and why: one sentence without its name.
    pub(super) fn apply(
        &self,
        settings: &mut SubsystemSettings,
    ) -> Result<(), (&Spanned<String>, String)> {
        for (name, value) in &self.0 {
            let set = text(value).and_then(|value| {
                settings.set(name.get_ref(), &value).map_err(|refused| refused.to_string())
            });
            set.map_err(|why| (name, why))?;
        }
        Ok(())
    }
}

/// What would be written to the attribute.
fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Boolean(on) => Ok(u8::from(*on).to_string()),
        _ => Err("takes a string, a whole number, or true or false".to_owned()),
    }
}
