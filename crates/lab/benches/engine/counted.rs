//! The two engines with a marked entrance each, so that callgrind counts what happens inside one
//! of them and nothing else.

use crate::keeper::Keeper;
use anabranch_host::Worker;
use anabranch_proto::machine::{Buffers, ConnId, Gather, Input, Machine, Output, Time};
use anabranch_target::Target;
use std::hint::black_box;

type HostWorker = Worker<Keeper>;
type OutputOf<M> = Output<<M as Machine>::Mail, <M as Machine>::Reply, <M as Machine>::Event>;

/// The marked entrances of one engine: free functions, the names of others differ between the
/// compiler's ways to mangle them.
macro_rules! entrances {
    ($name:ident, $engine:ty, $handle:ident, $poll_output:ident, $poll_transmit:ident) => {
        /// An engine, entered by marked functions.
        pub(crate) struct $name(pub(crate) $engine);

        #[inline(never)]
        fn $handle(
            engine: &mut $engine,
            now: Time,
            input: Input<'_, <$engine as Machine>::Verb, <$engine as Machine>::Mail>,
            bufs: &mut dyn Buffers,
        ) {
            engine.handle(now, input, bufs);
            // Something to do behind the call: a jump would have no end that callgrind sees.
            black_box(engine);
        }

        #[inline(never)]
        fn $poll_output(engine: &mut $engine) -> Option<OutputOf<$engine>> {
            let output = engine.poll_output();
            black_box(engine);
            output
        }

        #[inline(never)]
        fn $poll_transmit(
            engine: &mut $engine,
            now: Time,
            conn: ConnId,
            batch: &mut dyn Gather,
            bufs: &mut dyn Buffers,
        ) {
            engine.poll_transmit(now, conn, batch, bufs);
            black_box(engine);
        }

        impl $name {
            /// The entrances, as callgrind knows them.
            pub(crate) const ENTRANCES: [&str; 3] = [
                concat!(module_path!(), "::", stringify!($handle)),
                concat!(module_path!(), "::", stringify!($poll_output)),
                concat!(module_path!(), "::", stringify!($poll_transmit)),
            ];
        }

        impl Machine for $name {
            type Mail = <$engine as Machine>::Mail;
            type Verb = <$engine as Machine>::Verb;
            type Reply = <$engine as Machine>::Reply;
            type Event = <$engine as Machine>::Event;

            fn handle(
                &mut self,
                now: Time,
                input: Input<'_, Self::Verb, Self::Mail>,
                bufs: &mut dyn Buffers,
            ) {
                $handle(&mut self.0, now, input, bufs);
            }

            fn poll_output(&mut self) -> Option<OutputOf<Self>> {
                $poll_output(&mut self.0)
            }

            fn poll_transmit(
                &mut self,
                now: Time,
                conn: ConnId,
                batch: &mut dyn Gather,
                bufs: &mut dyn Buffers,
            ) {
                $poll_transmit(&mut self.0, now, conn, batch, bufs);
            }

            fn poll_timeout(&mut self) -> Option<Time> {
                self.0.poll_timeout()
            }
        }
    };
}

entrances!(CountedHost, HostWorker, host_handle, host_poll_output, host_poll_transmit);
entrances!(CountedTarget, Target, target_handle, target_poll_output, target_poll_transmit);
