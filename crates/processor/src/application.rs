//! An application: what it declares, and the handlers of its commands.

use std::{collections::BTreeSet, sync::Arc};

use eventlog::{QName, RecordId};
use hashbrown::HashMap;

use crate::{Declarations, Handler, InvalidApplication, builtin, system_tables::DESCRIPTOR_ID};

/// An application: what it [declares](Declarations), and the handlers of its commands.
#[derive(Debug)]
pub struct Application {
    declarations: Declarations,
    handlers: HashMap<QName, Arc<dyn Handler>>,
}

impl Application {
    /// The id of a descriptor: the record that names the kind of a workspace. A workspace without a
    /// descriptor does not exist.
    pub const DESCRIPTOR: RecordId = DESCRIPTOR_ID;

    /// Creates an application with the commands `sys.CUD` and `sys.CreateWorkspace`.
    pub fn new(declarations: Declarations) -> Application {
        Application { declarations, handlers: builtin::handlers().into_iter().collect() }
    }

    /// Adds a command of the application.
    ///
    /// # Errors
    /// If the command is in the package `sys`, or if the application has that command already.
    pub fn with_command(
        mut self,
        name: QName,
        handler: impl Handler,
    ) -> Result<Application, InvalidApplication> {
        if name.package() == "sys" {
            return Err(InvalidApplication::System(name));
        }
        if self.handlers.insert(name.clone(), Arc::new(handler)).is_some() {
            return Err(InvalidApplication::HandlerTwice(name));
        }
        Ok(self)
    }

    /// What the application declares.
    pub fn declarations(&self) -> &Declarations {
        &self.declarations
    }

    /// The commands, by name.
    pub fn commands(&self) -> impl Iterator<Item = &QName> {
        let names: BTreeSet<&QName> = self.handlers.keys().collect();
        names.into_iter()
    }

    pub(crate) fn handler(&self, command: &QName) -> Option<&Arc<dyn Handler>> {
        self.handlers.get(command)
    }
}
