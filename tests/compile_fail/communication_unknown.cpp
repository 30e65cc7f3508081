// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Communication<How> does not support this mode. The communicator chooses how buckets are
// sent. Write Communication<Tuned>, or a policy of your own for this slot. See
// docs/policies/communication.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Communication<ts::Tuned>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Communication<ts::Fast>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
