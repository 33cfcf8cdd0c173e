// What a seed draws: the jobs of its world and what happens to them.
#pragma once

#include "sim_job.h"

namespace cairn::sim {

// Where nothing goes wrong.
JobPlan draw_quiet_job(Random& random, int first_version);
JobPlan draw_troubled_job(Random& random, int first_version);
// Ranks that load `version` of these shapes.
JobPlan draw_loading_job(Random& random, const Shapes& shapes, int version);

}  // namespace cairn::sim
