//! What requests hold for a time, and give back when it is dropped: places, memory, turns. And the
//! rate of commands.

mod follower_places;
mod memory;
mod places;
mod rate;
mod read_throttle;
mod send_places;

pub use self::memory::READ_BYTES;
pub(crate) use self::rate::PrincipalRate;
pub use self::{
    follower_places::{FollowerPlace, FollowerPlaces},
    memory::{AnswerMemory, MemoryPool, MemoryShare},
    places::{NoPlace, Place, PlaceTaker, Places},
    read_throttle::ReadThrottle,
    send_places::SendPlaces,
};
