// SPDX-License-Identifier: Apache-2.0
// Lists all slots, which are the decisions that describe a run. The default policy of a slot may depend on
// the policies of the slots above it in the list, never on the slots below it.
#pragma once

#include "tessera/policy/adapters.hpp"
#include "tessera/policy/attention.hpp"
#include "tessera/policy/capture.hpp"
#include "tessera/policy/communication.hpp"
#include "tessera/policy/device.hpp"
#include "tessera/policy/loss_scale.hpp"
#include "tessera/policy/offload.hpp"
#include "tessera/policy/parallel.hpp"
#include "tessera/policy/precision.hpp"
#include "tessera/policy/recompute.hpp"
#include "tessera/policy/reduction.hpp"
#include "tessera/policy/sharding.hpp"

namespace tessera {
inline namespace v0 {

using Slots = detail::list<slot::device,         //
                           slot::sharding,       //
                           slot::precision,      //
                           slot::loss_scale,     //
                           slot::offload,        //
                           slot::recompute,      //
                           slot::reduction,      //
                           slot::communication,  //
                           slot::capture,        //
                           slot::attention,      //
                           slot::parallel,       //
                           slot::adapters>;

}  // namespace v0
}  // namespace tessera
