//! Encodes push notification configurations, without their secrets.

use serde::{Serialize, Serializer};
use talaria_turns::{Authentication, PushConfig, TaskId};

use crate::dialect::Dialect;
use crate::json_out::{Object, Seq};

/// A configuration as its owner sees it.
pub(crate) struct PushConfigOut<'a>(pub(crate) Dialect, pub(crate) &'a TaskId, pub(crate) &'a PushConfig);

/// All configurations of a task.
pub(crate) struct PushConfigsOut<'a>(pub(crate) Dialect, pub(crate) &'a TaskId, pub(crate) &'a [PushConfig]);

/// The `authentication` of 1.0.
struct SchemeOut<'a>(&'a Authentication);

/// The `pushNotificationConfig` of 0.3.
struct NestedOut<'a>(&'a PushConfig);

/// The `authentication` of 0.3.
struct SchemesOut<'a>(&'a Authentication);

impl Serialize for PushConfigOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(dialect, task, config) = *self;
        let mut object = Object::begin(serializer)?;
        match dialect {
            Dialect::V1 => {
                object.field("id", config.id.as_str())?;
                object.field("taskId", task.as_str())?;
                object.field("url", &config.url)?;
                object.optional("authentication", config.authentication.as_ref().map(SchemeOut))?;
            }
            Dialect::V03 => {
                object.field("taskId", task.as_str())?;
                object.field("pushNotificationConfig", &NestedOut(config))?;
            }
            Dialect::V03Rest => {
                object.field("name", &format_args!("tasks/{task}/pushNotificationConfigs/{}", config.id))?;
                object.field("pushNotificationConfig", &NestedOut(config))?;
            }
        }
        object.end()
    }
}

impl Serialize for PushConfigsOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(dialect, task, configs) = *self;
        let all = configs.iter().map(|config| PushConfigOut(dialect, task, config));
        if dialect == Dialect::V03 {
            return serializer.collect_seq(all);
        }
        let mut object = Object::begin(serializer)?;
        object.field("configs", &Seq(all))?;
        object.end()
    }
}

impl Serialize for SchemeOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field("scheme", &self.0.scheme)?;
        object.end()
    }
}

impl Serialize for NestedOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field("id", self.0.id.as_str())?;
        object.field("url", &self.0.url)?;
        object.optional("authentication", self.0.authentication.as_ref().map(SchemesOut))?;
        object.end()
    }
}

impl Serialize for SchemesOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field("schemes", &[&self.0.scheme])?;
        object.end()
    }
}
