# Standard errors of a release with replicate weights, by R's survey package (Lumley 2010).
#
# Such a release comes of `replicates: 200` among the settings of `measured` weights. One file and
# one number are needed, which three lines of Python write:
#
#   release = dpiw.load_release(folder, public_key=key)
#   release.export("town.csv", replicates=True)
#   print(release.replicate_weights.scale)
#
# Then: Rscript survey.R town.csv SCALE
# Every standard error holds the privacy noise of the weights, the sampling of people and of
# synthetic rows, and the generator's misfit as far as the release knows it.

suppressPackageStartupMessages(library(survey))

given <- commandArgs(trailingOnly = TRUE)
rows <- read.csv(given[1], stringsAsFactors = TRUE)

design <- svrepdesign(
  data = rows, weights = ~weight, repweights = "^r[0-9]+$", type = "other",
  scale = as.numeric(given[2]), rscales = 1, combined.weights = TRUE, mse = TRUE
)

means <- svymean(~ age + smoker, design)
fit <- svyglm(ill ~ age + smoker, design, family = quasibinomial())
middle <- svyquantile(~ hours, design, 0.5)

told <- rbind(
  data.frame(name = names(coef(means)), estimate = coef(means), error = SE(means)),
  data.frame(name = paste0("ill~", names(coef(fit))), estimate = coef(fit), error = SE(fit)),
  data.frame(name = "median(hours)", estimate = coef(middle), error = SE(middle))
)
write.csv(told, row.names = FALSE)
